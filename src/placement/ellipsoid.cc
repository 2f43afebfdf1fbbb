#include "placement/ellipsoid.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shale {
namespace {

// {center + factor · u : |u| ≤ 1}, in two dimensions or more. Keeping the factor, not its square, is what keeps cuts
// accurate when the ellipsoid has become flat.
class Ellipsoid {
 public:
  explicit Ellipsoid(std::size_t size) : size_(size), center_(size, 0.5), factor_(size * size), along_(size) {
    for (std::size_t i = 0; i < size; ++i) factor(i, i) = 0.5 * std::sqrt(static_cast<double>(size));  // holds the box
  }

  const std::vector<double>& center() const { return center_; }

  // The largest normalᵀ (x − center) over the ellipsoid; `along_` becomes factorᵀ · normal.
  double reach(std::span<const double> normal) {
    double square = 0;
    for (std::size_t j = 0; j < size_; ++j) {
      along_[j] = 0;
      for (std::size_t i = 0; i < size_; ++i) along_[j] += factor(i, j) * normal[i];
      square += along_[j] * along_[j];
    }
    return std::sqrt(square);
  }

  // The smallest ellipsoid around what is left by normalᵀ (x − center) ≤ −depth · reach(normal); 0 ≤ depth < 1.
  void cut(std::span<const double> normal, double depth) {
    const double length = reach(normal);
    const double n = static_cast<double>(size_);
    const double shift = (1 + n * depth) / (n + 1);
    const double grow = std::sqrt(n * n * (1 - depth * depth) / (n * n - 1));
    const double flatten = std::sqrt(1 - 2 * (1 + n * depth) / ((n + 1) * (1 + depth))) - 1;
    for (double& a : along_) a /= length;
    for (std::size_t i = 0; i < size_; ++i) {
      double step = 0;
      for (std::size_t j = 0; j < size_; ++j) step += factor(i, j) * along_[j];
      center_[i] -= shift * step;
      for (std::size_t j = 0; j < size_; ++j) factor(i, j) = grow * (factor(i, j) + flatten * step * along_[j]);
    }
  }

 private:
  double& factor(std::size_t i, std::size_t j) { return factor_[i * size_ + j]; }

  std::size_t size_;
  std::vector<double> center_, factor_, along_;
};

}  // namespace

double minimise_over_unit_box(std::size_t size, const EllipsoidOptions& options,
                              const std::function<double(std::span<const double>, std::span<double>)>& value) {
  const std::size_t dimensions = std::max<std::size_t>(size, 2);  // one variable: beside an idle one
  Ellipsoid ellipsoid(dimensions);
  std::vector<double> normal(dimensions);
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step < options.steps_max; ++step) {
    const std::vector<double>& at = ellipsoid.center();
    std::ranges::fill(normal, 0.0);
    const auto outside = std::ranges::find_if(at, [](double x) { return x < 0 || x > 1; });
    double depth = 0;
    if (outside != at.end()) {
      const double beyond = *outside < 0 ? -*outside : *outside - 1;
      normal[static_cast<std::size_t>(outside - at.begin())] = *outside < 0 ? -1 : 1;
      depth = beyond / ellipsoid.reach(normal);
    } else {
      const double here = value({at.data(), size}, {normal.data(), size});
      least = std::min(least, here);
      const double reach = ellipsoid.reach(normal);
      if (here - reach >= least - options.gap) return least;
      depth = (here - least) / reach;
    }
    if (!(depth < 1)) return least;  // nothing is left but rounding
    ellipsoid.cut(normal, depth);
  }
  return least;
}

}  // namespace shale
