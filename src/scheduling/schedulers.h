// The schedulers there are. Each is one file of this folder; adding one adds its file and its line here.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "scheduling/scheduler.h"

// Alphabetical: name, whether its order depends on what is cached.
#define SHALE_SCHEDULERS(X) \
  X(fifo, false)            \
  X(longest, false)         \
  X(reuse, true)            \
  X(shortest, false)

namespace shale {

struct SchedulerOptions {
  double alpha = 1;  // reuse: weight of a resident block
  double beta = 1;   // reuse: weight of a second of waiting
  // reuse: score every waiting request anew before each choice, each look-up touching what it finds, as the paper's
  // table has it: a batch of n costs n² look-ups. Otherwise follow the cache's changes, touching nothing.
  bool rescore = true;
};

// Defined by the scheduler's file: make_fifo and so on.
#define SHALE_DECLARE(name, reads_cache) \
  std::unique_ptr<Scheduler> make_##name(const SchedulerOptions& options, PrefixLookup& cache);
SHALE_SCHEDULERS(SHALE_DECLARE)
#undef SHALE_DECLARE

std::vector<std::string_view> scheduler_names();
// Whether the order of requests depends on what is cached; false for unknown names.
bool scheduler_reads_cache(std::string_view name);
// kInvalidArgument names the known ones. `cache` outlives the scheduler.
Result<std::unique_ptr<Scheduler>> make_scheduler(std::string_view name, const SchedulerOptions& options,
                                                  PrefixLookup& cache);

}  // namespace shale
