// Ranks 0 … n-1 with probability proportional to 1 / (rank + 1)^s, drawn in constant time and memory by
// rejection-inversion (Hörmann and Derflinger 1996, "Rejection-inversion to generate variates from monotone discrete
// distributions").
#pragma once

#include <cmath>
#include <cstdint>

#include "trace/random.h"

namespace shale {

class Zipf {
 public:
  // n > 0, s ≥ 0; s = 0: all ranks alike.
  Zipf(std::uint64_t n, double s)
      : n_(n), s_(s), first_(integral(1.5) - 1), last_(integral(static_cast<double>(n) + 0.5)) {}

  std::uint64_t draw(Random& random) const {
    for (;;) {
      const double u = last_ + random.uniform() * (first_ - last_);
      const double x = inverse(u);
      const double k = std::min(std::max(std::round(x), 1.0), static_cast<double>(n_));
      if (u >= integral(k + 0.5) - std::pow(k, -s_)) return static_cast<std::uint64_t>(k) - 1;
    }
  }

 private:
  // The integral of x^-s, from 1 to x; and its inverse.
  double integral(double x) const { return s_ == 1 ? std::log(x) : std::expm1((1 - s_) * std::log(x)) / (1 - s_); }
  double inverse(double u) const { return s_ == 1 ? std::exp(u) : std::exp(std::log1p((1 - s_) * u) / (1 - s_)); }

  std::uint64_t n_;
  double s_, first_, last_;
};

}  // namespace shale
