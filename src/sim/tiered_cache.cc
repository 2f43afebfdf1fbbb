#include "sim/tiered_cache.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <utility>
#include <vector>

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

// Those being served, each by a server of its own, in the order in which they have their first tokens.
class Servers {
 public:
  explicit Servers(TieredEngine& engine) : engine_(engine) {}

  std::size_t busy() const { return served_.size(); }
  double first_end_s() const { return served_.begin()->first.first; }

  // What it found, at a time that never goes back.
  const Served& begin(Prompt prompt, double now_s, bool counted) {
    Served served = engine_.look_up(prompt, now_s);
    const std::pair end{now_s + served.seconds, begun_++};
    return served_.emplace(end, Run{std::move(prompt), std::move(served), counted}).first->second.served;
  }
  void finish_first() {
    const auto node = served_.extract(served_.begin());
    const double end_s = node.key().first;
    const auto& [prompt, served, counted] = node.mapped();
    engine_.finish(prompt.path, served, end_s, counted);
    engine_.answered(prompt, served, end_s, counted);
  }
  void finish_until(double now_s) {
    while (busy() > 0 && first_end_s() <= now_s) finish_first();
  }

 private:
  struct Run {
    Prompt prompt;
    Served served;
    bool counted;
  };

  TieredEngine& engine_;
  std::map<std::pair<double, std::uint64_t>, Run> served_;
  std::uint64_t begun_ = 0;
};

// On servers of which each serves one request at a time; without any nobody waits.
Times serve_alone(const Trace& trace, const Contexts& contexts, const TieredOptions& options, TieredEngine& engine,
                  const KeepGoing& keep_going) {
  Servers servers(engine);
  Times times;
  double busy_s = 0, done_s = 0, from_s = 0;
  for (std::uint64_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    if (keep_going && i % kRequestsBetweenLooks == 0 && !keep_going(i)) break;
    double now_s = request.arrival_s;
    servers.finish_until(now_s);
    if (options.servers > 0 && servers.busy() == options.servers) {
      now_s = servers.first_end_s();
      servers.finish_first();
    }
    if (i > 0 && i == options.warm_requests) from_s = now_s;
    const bool counted = i >= options.warm_requests;
    const double service_s = servers.begin(contexts.prompt(trace, request), now_s, counted).seconds;
    if (!counted) continue;
    times.ttfts.push_back(now_s - request.arrival_s + service_s);
    busy_s += service_s;
    done_s = std::max(done_s, now_s + service_s);
  }
  servers.finish_until(std::numeric_limits<double>::infinity());
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
  result.tokens_lossy = engine.tokens_lossy();
  if (!times.ttfts.empty()) {
    const auto requests = static_cast<double>(times.ttfts.size());
    result.quality = engine.quality_sum() / static_cast<double>(result.requests);
    for (const double ttft : times.ttfts) result.ttft_mean_s += ttft / requests;
  }
  result.busy = times.busy;
  result.ttft = percentiles_of(times.ttfts);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shale
