#include "sim/serving.h"

#include <algorithm>

namespace shale {

PrefixCache::Request cache_request(const Trace& trace, const TraceRequest& request, bool decode, double time_s) {
  PrefixCache::Request wanted{.path = trace.prompt(request),
                              .prompt_blocks = request.prompt_blocks,
                              .last_is_partial = trace.last_is_partial(request),
                              .answer_tokens = request.output_tokens,
                              .time_s = time_s};
  if (!decode) return wanted;
  const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
  const std::uint64_t blocks = (tokens + trace.block_tokens - 1) / trace.block_tokens;
  if (request.output_blocks > 0) {
    wanted.path = trace.conversation(request);
  } else if (blocks > request.prompt_blocks) {
    wanted.nameless_blocks = static_cast<std::uint32_t>(blocks - request.prompt_blocks);
  }
  wanted.last_is_partial = (wanted.path.size() + wanted.nameless_blocks) * trace.block_tokens > tokens;
  return wanted;
}

WaitingRequest waiting_request(const Trace& trace, std::uint32_t id) {
  const TraceRequest& request = trace.requests[id];
  return {.id = id,
          .arrival_s = request.arrival_s,
          .prompt_blocks = request.prompt_blocks,
          .blocks = trace.prompt(request)};
}

Serving::Serving(const Trace& trace, const SimulationOptions& options, EvictionPolicy& policy, std::stop_token stop)
    : trace_(trace),
      options_(options),
      cache_(options.blocks, trace.unique_blocks(), policy),
      stop_(std::move(stop)),
      point_every_(std::max<std::uint64_t>(1, trace.requests.size() / std::max(1u, options.timeline_points))) {}

std::uint32_t Serving::serve(std::uint32_t id, double time_s) {
  const TraceRequest& request = trace_.requests[id];
  const std::uint32_t reused = cache_.serve(cache_request(trace_, request, options_.decode, time_s));
  ++result_.requests;
  result_.blocks_requested += request.prompt_blocks;
  result_.blocks_reused += reused;
  if (options_.timeline_points > 0 && result_.requests % point_every_ == 0) {
    result_.timeline.push_back(
        {time_s, result_.requests, result_.blocks_requested, result_.blocks_reused, cache_.resident_blocks()});
  }
  return reused;
}

SimulationResult Serving::result() && {
  result_.evictions = cache_.evictions();
  return std::move(result_);
}

}  // namespace shale
