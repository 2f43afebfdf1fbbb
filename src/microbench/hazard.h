// How much the policy `hazard` owes to each signal, and what it could reach at most: `shale bench hazard`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "trace/trace.h"

namespace shale::bench {

struct HazardRow {
  std::string trace, variant;
  std::uint64_t blocks = 0;  // that the cache holds
  // Shares of the blocks that were asked for: of the whole trace, and of the first and the second half of its requests
  // in that one run. Means over the seeds.
  double hit_ratio = 0, first_half = 0, second_half = 0;
  double lowest = 0, highest = 0;  // hit_ratio of a seed
};

struct HazardStudyOptions {
  std::vector<std::uint64_t> blocks = {1'000, 5'000, 10'000};
  std::uint32_t seeds = 8;  // that choose which blocks become samples
};

// Calls on_row for every variant and size: lru, lru_k, hazard, hazard without each property, with other numbers of
// ghosts, hazard that knows the whole trace's returns by property from the start ("hindsight"), and the optimum. An
// error of on_row ends the study and is returned.
Status hazard_rows(const Trace& trace, const HazardStudyOptions& options,
                   const std::function<Status(const HazardRow&)>& on_row);

}  // namespace shale::bench
