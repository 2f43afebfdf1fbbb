// How sure a mean of few measurements is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shale {

struct Interval {
  double mean = 0, low = 0, high = 0;
};

// The mean of all values with its bootstrap interval of 95 % (percentiles of `resamples` seeded resamplings with
// replacement, of whole groups: questions of one context are no independent measurements). Groups may differ in size;
// empty ones are passed over. No values: zeros. One group: the interval is the mean alone.
Interval bootstrap_mean(std::span<const std::vector<double>> groups, std::uint32_t resamples = 1000,
                        std::uint64_t seed = 0);

}  // namespace shale
