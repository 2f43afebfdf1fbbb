#include "sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/clock.h"
#include "eviction/policies.h"
#include "sim/prefix_cache.h"

namespace shale {
namespace {

constexpr std::size_t kRequestsBetweenStops = 1024;

// Serves requests of a trace and counts.
class Run {
 public:
  Run(const Trace& trace, const SimulationOptions& options, EvictionPolicy& policy)
      : trace_(trace),
        options_(options),
        cache_(options.blocks, trace.unique_blocks(), policy),
        point_every_(std::max<std::uint64_t>(1, trace.requests.size() / std::max(1u, options.timeline_points))) {}

  PrefixCache& cache() { return cache_; }

  // Returns how many blocks of the prompt were resident.
  std::uint32_t serve(std::uint32_t id, double time_s) {
    const TraceRequest& request = trace_.requests[id];
    const std::uint32_t reused = cache_.serve(cache_request(request, time_s));
    ++result_.requests;
    result_.blocks_requested += request.prompt_blocks;
    result_.blocks_reused += reused;
    if (options_.timeline_points > 0 && result_.requests % point_every_ == 0) {
      result_.timeline.push_back(
          {time_s, result_.requests, result_.blocks_requested, result_.blocks_reused, cache_.resident_blocks()});
    }
    return reused;
  }

  bool should_stop(const std::stop_token& stop) const {
    return result_.requests % kRequestsBetweenStops == 0 && stop.stop_requested();
  }

  SimulationResult result() && {
    result_.evictions = cache_.evictions();
    return std::move(result_);
  }

 private:
  PrefixCache::Request cache_request(const TraceRequest& request, double time_s) const {
    PrefixCache::Request wanted{.path = trace_.prompt(request),
                                .prompt_blocks = request.prompt_blocks,
                                .last_is_partial = trace_.last_is_partial(request),
                                .time_s = time_s};
    if (!options_.decode) return wanted;
    const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
    const std::uint64_t blocks = (tokens + trace_.block_tokens - 1) / trace_.block_tokens;
    wanted.last_is_partial = tokens % trace_.block_tokens != 0;
    if (request.output_blocks > 0) {
      wanted.path = trace_.conversation(request);
    } else if (blocks > request.prompt_blocks) {
      wanted.nameless_blocks = static_cast<std::uint32_t>(blocks - request.prompt_blocks);
    }
    return wanted;
  }

  const Trace& trace_;
  const SimulationOptions& options_;
  PrefixCache cache_;
  std::uint64_t point_every_;
  SimulationResult result_;
};

WaitingRequest waiting_request(const Trace& trace, std::uint32_t id) {
  const TraceRequest& request = trace.requests[id];
  return {.id = id, .arrival_s = request.arrival_s, .blocks = trace.prompt(request)};
}

// The end of the batch that starts at `first`.
std::uint32_t batch_end(const Trace& trace, std::uint32_t first, double window_s) {
  const auto batch = [&](std::uint32_t id) {
    const double arrival_s = trace.requests[id].arrival_s;
    return window_s > 0 ? std::floor(arrival_s / window_s) : arrival_s;
  };
  std::uint32_t end = first + 1;
  while (end < trace.requests.size() && batch(end) == batch(first)) ++end;
  return end;
}

// Calls serve(id, time_s) for every request in the scheduler's order of each batch, until it returns false.
template <class Serve>
void serve_batches(const Trace& trace, double window_s, Scheduler& scheduler, const Serve& serve) {
  const auto count = static_cast<std::uint32_t>(trace.requests.size());
  for (std::uint32_t first = 0, end = 0; first < count; first = end) {
    end = batch_end(trace, first, window_s);
    for (std::uint32_t id = first; id < end; ++id) scheduler.add(waiting_request(trace, id));
    const double time_s = trace.requests[end - 1].arrival_s;
    while (scheduler.waiting() > 0) {
      if (!serve(scheduler.take(), time_s)) return;
    }
  }
}

WaitingTimes serve_online(const Trace& trace, const ServiceModel& model, Scheduler& scheduler, Run& run,
                          const std::stop_token& stop) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s;  // when each server is free again
  for (std::uint32_t i = 0; i < model.servers; ++i) free_s.push(0);
  std::vector<double> waiting, ttft;
  double now_s = 0, busy_s = 0, done_s = 0;
  std::uint32_t arrived = 0;
  const auto count = static_cast<std::uint32_t>(trace.requests.size());
  while ((scheduler.waiting() > 0 || arrived < count) && !run.should_stop(stop)) {
    now_s = std::max(now_s, free_s.top());
    if (scheduler.waiting() == 0) now_s = std::max(now_s, trace.requests[arrived].arrival_s);
    for (; arrived < count && trace.requests[arrived].arrival_s <= now_s; ++arrived) {
      scheduler.add(waiting_request(trace, arrived));
    }
    const std::uint32_t id = scheduler.take();
    const TraceRequest& request = trace.requests[id];
    const std::uint64_t cached_tokens =
        std::min<std::uint64_t>(std::uint64_t{run.serve(id, now_s)} * trace.block_tokens, request.input_tokens);
    const double prefill_s = model.prefill_s(request.input_tokens - cached_tokens, cached_tokens);
    const double service_s = prefill_s + model.decode_s(request.output_tokens);
    waiting.push_back(now_s - request.arrival_s);
    ttft.push_back(now_s + prefill_s - request.arrival_s);
    busy_s += service_s;
    done_s = std::max(done_s, now_s + service_s);
    free_s.pop();
    free_s.push(now_s + service_s);
  }
  return {percentiles_of(std::move(waiting)), percentiles_of(std::move(ttft)),
          done_s > 0 ? busy_s / (done_s * model.servers) : 0};
}

}  // namespace

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto rank = [&](double share) {
    const auto nth = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
    std::nth_element(values.begin(), values.begin() + nth, values.end());
    return values[static_cast<std::size_t>(nth)];
  };
  return {rank(0.50), rank(0.90), rank(0.99)};
}

Result<SimulationResult> simulate(const Trace& trace, const SimulationOptions& options, std::stop_token stop) {
  if (options.blocks == 0) return fail(ErrorCode::kInvalidArgument, "a cache of 0 blocks holds nothing");
  const RealClock clock;
  const double start_s = clock.now_s();
  SHALE_ASSIGN(const auto policy, make_eviction_policy(options.policy, {options.blocks, options.seed}));
  Run run(trace, options, *policy);
  SHALE_ASSIGN(const auto scheduler,
               make_scheduler(options.scheduler, {options.alpha, options.beta, !options.service}, run.cache()));
  run.cache().observe(scheduler->observer());

  std::optional<WaitingTimes> times;
  if (options.service) {
    times = serve_online(trace, *options.service, *scheduler, run, stop);
  } else {
    serve_batches(trace, options.window_s, *scheduler, [&](std::uint32_t id, double time_s) {
      run.serve(id, time_s);
      return !run.should_stop(stop);
    });
  }
  SimulationResult result = std::move(run).result();
  result.times = times;
  result.seconds = clock.now_s() - start_s;
  return result;
}

}  // namespace shale
