// Seeded draws that are the same on every machine: the standard's engine without its distributions, which differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace shale {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // In [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  // In [0, end); end > 0.
  std::uint64_t below(std::uint64_t end) {
    const std::uint64_t kept = -end % end;  // draws under 2^64 mod end are drawn again, so that all are as likely
    std::uint64_t draw = engine_();
    while (draw < kept) draw = engine_();
    return draw % end;
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  double normal() { return std::sqrt(-2 * std::log1p(-uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  // Failures before the first success, of mean `mean`.
  std::uint64_t geometric(double mean) {
    if (!(mean > 0)) return 0;
    return static_cast<std::uint64_t>(std::log1p(-uniform()) / std::log(mean / (1 + mean)));
  }
  // A number from 1 to `most`; its logarithm is normal between them with `sigma`, its median `median`.
  std::uint64_t log_normal(double median, double sigma, std::uint64_t most) {
    const double drawn = std::round(median * std::exp(sigma * normal()));
    return static_cast<std::uint64_t>(std::clamp(drawn, 1.0, static_cast<double>(most)));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace shale
