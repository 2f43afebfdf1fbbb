#include "sim/tiered_cache.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <queue>
#include <utility>

#include "sim/contexts.h"
#include "sim/tiered_engine.h"

namespace shale {
Result<TieredResult> simulate_tiers(const Trace& trace, const TieredOptions& options, const KeepGoing& keep_going) {
  SHALE_ASSIGN(const TieredSetup setup, TieredSetup::make(options));
  const auto start = std::chrono::steady_clock::now();
  const Contexts contexts(trace);
  TieredEngine engine(contexts, options, setup);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s;  // when each server is free again
  for (std::uint32_t i = 0; i < options.servers; ++i) free_s.push(0);
  std::vector<double> ttfts;
  double busy_s = 0, done_s = 0;
  for (const TraceRequest& request : trace.requests) {
    if (keep_going && ttfts.size() % kRequestsBetweenLooks == 0 && !keep_going(ttfts.size())) break;
    const double now_s = free_s.empty() ? request.arrival_s : std::max(request.arrival_s, free_s.top());
    const double service_s = engine.serve(contexts.path(trace, request), now_s);
    ttfts.push_back(now_s - request.arrival_s + service_s);
    if (free_s.empty()) continue;
    free_s.pop();
    free_s.push(now_s + service_s);
    busy_s += service_s;
    done_s = std::max(done_s, now_s + service_s);
  }
  TieredResult result = engine.counts();
  if (result.requests > 0) {
    result.quality = engine.quality_sum() / static_cast<double>(result.requests);
    for (const double ttft : ttfts) result.ttft_mean_s += ttft / static_cast<double>(result.requests);
  }
  if (done_s > 0) result.busy = busy_s / (done_s * options.servers);
  result.ttft = percentiles_of(std::move(ttfts));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shale
