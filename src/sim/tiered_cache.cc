#include "sim/tiered_cache.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <queue>
#include <utility>

#include "sim/batched_engine.h"
#include "sim/contexts.h"
#include "sim/tiered_engine.h"

namespace shale {
namespace {

// What a run came to beside what the engine counted.
struct Times {
  std::vector<double> ttfts;
  double busy = 0;
};

// On servers of which each serves one request at a time; without any nobody waits.
Times serve_alone(const Trace& trace, const Contexts& contexts, const TieredOptions& options, TieredEngine& engine,
                  const KeepGoing& keep_going) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s;  // when each server is free again
  for (std::uint32_t i = 0; i < options.servers; ++i) free_s.push(0);
  Times times;
  double busy_s = 0, done_s = 0, from_s = 0;
  for (std::uint64_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    if (keep_going && i % kRequestsBetweenLooks == 0 && !keep_going(i)) break;
    const double now_s = free_s.empty() ? request.arrival_s : std::max(request.arrival_s, free_s.top());
    if (i > 0 && i == options.warm_requests) from_s = now_s;
    const double service_s = engine.serve(contexts.prompt(trace, request), now_s).seconds;
    if (!free_s.empty()) {
      free_s.pop();
      free_s.push(now_s + service_s);
    }
    if (i < options.warm_requests) {
      engine.count_from_here();
      continue;
    }
    times.ttfts.push_back(now_s - request.arrival_s + service_s);
    busy_s += service_s;
    done_s = std::max(done_s, now_s + service_s);
  }
  if (options.servers > 0 && done_s > from_s) times.busy = busy_s / ((done_s - from_s) * options.servers);
  return times;
}

Times serve_together(const Trace& trace, const Contexts& contexts, const TieredOptions& options, TieredEngine& engine,
                     const KeepGoing& keep_going) {
  BatchedEngine batched(trace, contexts, options, engine);
  batched.run(keep_going);
  return {batched.take_ttfts(), batched.busy()};
}

}  // namespace

Result<TieredResult> simulate_tiers(const Trace& trace, const TieredOptions& options, const KeepGoing& keep_going) {
  SHALE_ASSIGN(const TieredSetup setup, TieredSetup::make(options));
  if (options.warm_requests > 0 && options.warm_requests >= trace.requests.size()) {
    return fail(ErrorCode::kInvalidArgument, "of {} requests {} are not counted: give fewer", trace.requests.size(),
                options.warm_requests);
  }
  const auto start = std::chrono::steady_clock::now();
  const Contexts contexts(trace);
  TieredEngine engine(contexts, options, setup);
  Times times = (options.batching ? serve_together : serve_alone)(trace, contexts, options, engine, keep_going);
  TieredResult result = engine.counts();
  if (!times.ttfts.empty()) {
    const auto requests = static_cast<double>(times.ttfts.size());
    result.quality = engine.quality_sum() / static_cast<double>(result.requests);
    for (const double ttft : times.ttfts) result.ttft_mean_s += ttft / requests;
  }
  result.busy = times.busy;
  result.ttft = percentiles_of(std::move(times.ttfts));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shale
