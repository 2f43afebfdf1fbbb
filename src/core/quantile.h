#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace shale {

// The smallest of the values that a share `q` of them does not pass (nearest rank); of no values 0. Every percentile
// and median that Shale reports is of nearest rank: this one, unless values have weights.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace shale
