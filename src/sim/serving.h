// A trace's requests put through a cache one by one, and counted. Private to the room.
#pragma once

#include <stop_token>

#include "sim/prefix_cache.h"
#include "sim/simulate.h"

namespace shale {

// kFull: with answers whose blocks the trace does not tell, but only how many tokens they have, a request or all
// together have more blocks than any trace may (TraceLimits).
Status check_answers(const Trace& trace);

// What the cache is asked for a request: the prompt's blocks and, with `decode`, the answer's; check_answers must hold
// then. How long the answer is no policy is told, as the engine's prefix tree tells none.
PrefixCache::Request cache_request(const Trace& trace, const TraceRequest& request, bool decode, double time_s);

// A request as schedulers see it; its id is its index in the trace.
WaitingRequest waiting_request(const Trace& trace, std::uint32_t id);

class Serving {
 public:
  // All outlive it.
  Serving(const Trace& trace, const SimulationOptions& options, EvictionPolicy& policy, std::stop_token stop);

  const Trace& trace() const { return trace_; }
  PrefixCache& cache() { return cache_; }

  // Serves it at a time that never goes back; returns how many blocks of its prompt were resident.
  std::uint32_t serve(std::uint32_t id, double time_s);
  // Asked between requests: one of a scheduler that looks much up may take long.
  bool should_stop() const { return stop_.stop_requested(); }

  SimulationResult result() &&;

 private:
  const Trace& trace_;
  const SimulationOptions& options_;
  PrefixCache cache_;
  std::stop_token stop_;
  SimulationResult result_;
};

// Serves in batches of equal timestamps, or of windows of time: the scheduler orders each, all are served before the
// next.
void serve_batches(Serving& serving, Scheduler& scheduler, double window_s);

// The order in which serve_batches serves, for a scheduler that does not read the cache.
std::vector<std::uint32_t> batch_order(const Trace& trace, std::string_view scheduler, double window_s);

// One at a time on each of the model's servers: a scheduler chooses among all that have arrived whenever a server is
// free. The cache changes when a service begins.
WaitingTimes serve_online(Serving& serving, Scheduler& scheduler, const ServiceModel& model);

}  // namespace shale
