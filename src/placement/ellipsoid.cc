#include "placement/ellipsoid.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shale {
namespace {

// {x : (x − center)ᵀ shape⁻¹ (x − center) ≤ 1}, in two dimensions or more.
class Ellipsoid {
 public:
  explicit Ellipsoid(std::size_t size) : size_(size), center_(size, 0.5), shape_(size * size), direction_(size) {
    for (std::size_t i = 0; i < size; ++i) shape_[i * size + i] = 0.25 * static_cast<double>(size);  // holds the box
  }

  const std::vector<double>& center() const { return center_; }

  // The largest normalᵀ (center − x) over the ellipsoid.
  double reach(std::span<const double> normal) {
    double sum = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      direction_[i] = 0;
      for (std::size_t j = 0; j < size_; ++j) direction_[i] += shape_[i * size_ + j] * normal[j];
      sum += normal[i] * direction_[i];
    }
    return std::sqrt(std::max(0.0, sum));
  }

  // The smallest ellipsoid around what is left by normalᵀ (x − center) ≤ −depth · reach(normal); 0 ≤ depth < 1.
  void cut(std::span<const double> normal, double depth) {
    const double length = reach(normal);
    const double n = static_cast<double>(size_);
    const double shift = (1 + n * depth) / (n + 1);
    const double scale = n * n * (1 - depth * depth) / (n * n - 1);
    const double flatten = 2 * (1 + n * depth) / ((n + 1) * (1 + depth));
    for (double& d : direction_) d /= length;
    for (std::size_t i = 0; i < size_; ++i) {
      center_[i] -= shift * direction_[i];
      for (std::size_t j = 0; j < size_; ++j) {
        shape_[i * size_ + j] = scale * (shape_[i * size_ + j] - flatten * direction_[i] * direction_[j]);
      }
    }
  }

 private:
  std::size_t size_;
  std::vector<double> center_, shape_, direction_;
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
