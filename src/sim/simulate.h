// One run of a trace through a prefix cache: how much is found again, under which policy, scheduler and size.
//
// Two ways to serve. *Batches*, as the published table has them: the requests that share a timestamp, or a window of
// time, are put in the scheduler's order, and all are served before the next batch. *Online*, by a ServiceModel: a
// scheduler chooses among all that have arrived each time a server is free, so waiting counts, and what a scheduler
// does to waiting times is seen, not only what it does to hits.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/error.h"
#include "scheduling/schedulers.h"
#include "sim/service_model.h"
#include "trace/trace.h"

namespace shale {

// Evicts the block whose next use is farthest away. It knows the order of all requests before the first is served.
inline constexpr std::string_view kOptimum = "optimum";

struct SimulationOptions {
  std::string policy = "lru";      // of simulation_policy_names()
  std::string scheduler = "fifo";  // a scheduler's name
  std::uint64_t blocks = 1000;     // that the cache holds; more than 0
  double window_s = 0;  // requests of one window, [k · window, (k + 1) · window), are a batch; 0: of one timestamp
  bool decode = false;  // answers are inserted too: their blocks where the trace tells them, else blocks
                        // that take room and are never asked for
  double alpha = 1, beta = 1;                // of the reuse scheduler (SchedulerOptions)
  std::uint64_t seed = 0;                    // of policies that draw lots
  bool hybrid_counts_length = true;          // EvictionOptions
  std::optional<ServiceModel> service = {};  // online; `window_s` means nothing then
  std::uint32_t timeline_points = 0;         // how many to keep, evenly over the requests; the last is the end
};

struct TimelinePoint {
  double time_s = 0;  // of the last request so far
  std::uint64_t requests = 0, blocks_requested = 0, blocks_reused = 0, resident_blocks = 0;  // so far
};

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;  // seconds; the smallest value that so many per cent do not exceed
};
Percentiles percentiles_of(const std::vector<double>& values);

// Waiting in an online run.
struct WaitingTimes {
  Percentiles waiting;  // from arrival to the start of service
  Percentiles ttft;     // from arrival to the first token
  double busy = 0;      // share of the servers' time, until the last is done
};

struct SimulationResult {
  std::uint64_t requests = 0;          // served; fewer than the trace's where a run was stopped
  std::uint64_t blocks_requested = 0;  // of prompts
  std::uint64_t blocks_reused = 0;
  std::uint64_t evictions = 0;
  double seconds = 0;  // that the run took
  std::vector<TimelinePoint> timeline;
  std::optional<WaitingTimes> times;

  double hit_ratio() const {
    return blocks_requested == 0 ? 0 : static_cast<double>(blocks_reused) / static_cast<double>(blocks_requested);
  }
};

// Every eviction policy, and kOptimum.
std::vector<std::string_view> simulation_policy_names();

// Whether the order of requests is the same whatever is cached, as the optimum must have it: not with a scheduler that
// reads the cache, and online, where hits shorten services, only with fifo.
bool order_is_fixed(const SimulationOptions& options);

// kInvalidArgument for unknown names, for sizes, rates and windows that make no sense, and for the optimum where the
// order is not fixed.
Status check_simulation(const SimulationOptions& options);

// kInvalidArgument as check_simulation; kFull where `decode` asks for more blocks than a trace may have. A run that is
// stopped returns what it has so far. Depends on its arguments alone, but for `seconds`; runs over one trace may go on
// in several threads.
Result<SimulationResult> simulate(const Trace& trace, const SimulationOptions& options, std::stop_token stop = {});

}  // namespace shale
