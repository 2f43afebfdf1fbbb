#include "sim/simulate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/clock.h"
#include "eviction/optimum.h"
#include "eviction/policies.h"
#include "sim/serving.h"

namespace shale {
namespace {

// When each block that the cache will be asked for is asked for again, as the optimum must know it.
std::vector<std::uint32_t> next_uses_of(const Trace& trace, const SimulationOptions& options) {
  const std::string_view scheduler = options.service ? "fifo" : std::string_view(options.scheduler);
  std::vector<std::uint32_t> blocks;
  blocks.reserve(trace.blocks.size());
  auto nameless = static_cast<std::uint32_t>(trace.unique_blocks());
  for (const std::uint32_t id : batch_order(trace, scheduler, options.window_s)) {
    const PrefixCache::Request request = cache_request(trace, trace.requests[id], options.decode, 0);
    blocks.insert(blocks.end(), request.path.begin(), request.path.end());
    for (std::uint32_t i = 0; i < request.nameless_blocks; ++i) blocks.push_back(nameless++);
  }
  return next_uses(blocks, nameless);
}

}  // namespace

std::vector<std::string_view> simulation_policy_names() {
  std::vector<std::string_view> names = eviction_policy_names();
  names.insert(std::ranges::lower_bound(names, kOptimum), kOptimum);
  return names;
}

bool order_is_fixed(const SimulationOptions& options) {
  return options.service ? options.scheduler == "fifo" : !scheduler_reads_cache(options.scheduler);
}

Status check_simulation(const SimulationOptions& options) {
  const auto policies = simulation_policy_names();
  if (std::ranges::find(policies, options.policy) == policies.end()) {
    return fail(ErrorCode::kInvalidArgument, "no policy '{}'; there are {}", options.policy, fmt::join(policies, ", "));
  }
  const auto schedulers = scheduler_names();
  if (std::ranges::find(schedulers, options.scheduler) == schedulers.end()) {
    return fail(ErrorCode::kInvalidArgument, "no scheduler '{}'; there are {}", options.scheduler,
                fmt::join(schedulers, ", "));
  }
  if (options.blocks == 0) return fail(ErrorCode::kInvalidArgument, "a cache of 0 blocks holds nothing: 1 or more");
  if (options.blocks > kNoBlock) {
    return fail(ErrorCode::kInvalidArgument, "a cache of {} blocks: at most {}", options.blocks, kNoBlock);
  }
  if (!std::isfinite(options.alpha) || !std::isfinite(options.beta)) {
    return fail(ErrorCode::kInvalidArgument, "alpha and beta are finite numbers");
  }
  if (!(options.window_s >= 0) || !std::isfinite(options.window_s)) {
    return fail(ErrorCode::kInvalidArgument, "a window of {} seconds: 0 or more", options.window_s);
  }
  if (const auto& model = options.service;
      model && !(model->prefill_tokens_per_s > 0 && model->cached_tokens_per_s > 0 && model->decode_tokens_per_s >= 0 &&
                 model->servers > 0 && model->servers <= kServersMax)) {
    return fail(ErrorCode::kInvalidArgument, "servers and their rates are above 0, and servers at most {}",
                kServersMax);
  }
  if (options.policy == kOptimum && !order_is_fixed(options)) {
    return fail(ErrorCode::kInvalidArgument,
                "the optimum must know the order of requests, and with scheduler '{}'{} what is cached changes it",
                options.scheduler, options.service ? " online" : "");
  }
  return {};
}

Result<SimulationResult> simulate(const Trace& trace, const SimulationOptions& options, std::stop_token stop) {
  SHALE_TRY(check_simulation(options));
  if (options.decode) SHALE_TRY(check_answers(trace));
  const RealClock clock;
  const double start_s = clock.now_s();
  std::vector<std::uint32_t> future;
  std::unique_ptr<EvictionPolicy> policy;
  if (options.policy == kOptimum) {
    future = next_uses_of(trace, options);
    policy = make_optimum(future);
  } else {
    SHALE_ASSIGN(policy, make_eviction_policy(options.policy, {.capacity_blocks = options.blocks,
                                                               .seed = options.seed,
                                                               .hybrid_counts_length = options.hybrid_counts_length}));
  }
  Serving serving(trace, options, *policy, std::move(stop));
  const SchedulerOptions scheduling{options.alpha, options.beta, !options.service};
  SHALE_ASSIGN(const auto scheduler, make_scheduler(options.scheduler, scheduling, serving.cache()));
  serving.cache().observe(scheduler->observer());

  std::optional<WaitingTimes> times;
  if (options.service) {
    times = serve_online(serving, *scheduler, *options.service);
  } else {
    serve_batches(serving, *scheduler, options.window_s);
  }
  SimulationResult result = std::move(serving).result();
  result.times = times;
  result.seconds = clock.now_s() - start_s;
  return result;
}

}  // namespace shale
