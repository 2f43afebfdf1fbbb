// How fast planning is and how near it comes to the best: `shale bench planner`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"

namespace shale::bench {

struct PlannerRow {
  std::string planner;  // a registered name, or "shale undivided"
  std::size_t prefixes = 0;
  std::size_t candidates = 0;  // of all cached prefixes together
  double demote_seconds = 0;   // from everything where it is inserted, which overfills every tier
  double promote_seconds = 0;  // after that
  double bound_seconds = 0;
  double utility = 0;  // of the plan after both
  double bound = 0;    // no plan's utility is larger
  // (utility − everything recomputed) / (bound − everything recomputed): of what caching can gain at all.
  double share_of_bound = 0;
  // The distance to the bound, (bound − utility) / Σ frequency: what a mean access may be short of, in seconds.
  double distance_per_access = 0;
};

// A placement kept up change by change.
struct PlannerChangesRow {
  std::string planner;
  std::size_t prefixes = 0;
  std::string changes;  // "insert": each cached prefix comes and is placed; "mixed": accesses by a Zipf law, among them
                        // removals with an insertion, new candidates and what the pool holds
  std::size_t count = 0;                     // of changes, each followed by one round of settling
  double mean_seconds = 0, p99_seconds = 0;  // a change with its round
  std::uint64_t moves = 0;
  double share_of_bound = 0;  // of the placement after all
};

struct PlannerBenchOptions {
  std::vector<std::size_t> prefixes = {100, 1'000, 10'000, 100'000};
  std::uint64_t seed = 1;
};

// One row for each size and planner, over contexts of 256 to 32,768 tokens with Zipf-like frequencies, three methods on
// the keep grid, and memory, disk and remote with room for 5, 20 and 40 % of the uncompressed bytes. The same seed
// gives the same problems, so all but the seconds repeat.
std::vector<PlannerRow> planner_rows(const PlannerBenchOptions& options, const Clock& clock);

// Two rows for each size and planner, over the same contexts.
std::vector<PlannerChangesRow> planner_changes_rows(const PlannerBenchOptions& options, const Clock& clock);

}  // namespace shale::bench
