// What scorers that look at attention have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "scoring/scorer.h"

namespace shale {

// Average pooling along tokens, `kernel` wide, zero-padded, the divisor always `kernel`. NaN stays where it is and
// counts as zero elsewhere.
inline void pool_average(std::span<const float> from, std::uint32_t kernel, std::span<float> to) {
  const std::ptrdiff_t tokens = std::ssize(from), reach = kernel / 2;
  for (std::ptrdiff_t i = 0; i < tokens; ++i) {
    float sum = 0;
    const std::ptrdiff_t end = std::min(tokens, i + reach + 1);
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(0, i - reach); j < end; ++j)
      sum += std::isnan(from[j]) ? 0.0f : from[j];
    to[i] = std::isnan(from[i]) ? from[i] : sum / static_cast<float>(kernel);
  }
}

// Puts tokens [first, end) of every head above all others: the layer's largest score of the other tokens + 1, or 1
// where there are none. Scores are [heads][tokens]; NaN stays.
inline void put_first(std::span<float> scores, std::uint32_t tokens, std::uint32_t first, std::uint32_t end) {
  const auto favoured = [&](std::size_t i) { return i % tokens >= first && i % tokens < end; };
  float maximum = end - first == tokens ? 0.0f : std::numeric_limits<float>::lowest();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!favoured(i)) maximum = std::max(maximum, scores[i]);  // NaN compares false and is passed over
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (favoured(i) && !std::isnan(scores[i])) scores[i] = maximum + 1;
  }
}

}  // namespace shale
