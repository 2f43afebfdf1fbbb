#include "sim/serving.h"

#include <algorithm>

#include "trace/trace_reader.h"

namespace shale {
namespace {

// Of the answer, where the trace does not tell its blocks.
std::uint64_t nameless_blocks(const Trace& trace, const TraceRequest& request) {
  if (request.output_blocks > 0) return 0;
  const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
  const std::uint64_t blocks = (tokens + trace.block_tokens - 1) / trace.block_tokens;
  return blocks - std::min<std::uint64_t>(blocks, request.prompt_blocks);
}

}  // namespace

Status check_answers(const Trace& trace) {
  const TraceLimits limits;
  std::uint64_t blocks = trace.blocks.size();
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const std::uint64_t nameless = nameless_blocks(trace, trace.requests[i]);
    if (nameless == 0) continue;
    if (trace.requests[i].prompt_blocks + nameless > limits.request_blocks_max) {
      return fail(ErrorCode::kFull, "{}: request {} has more than {} blocks with its answer", trace.name, i + 1,
                  limits.request_blocks_max);
    }
    blocks += nameless;
    if (blocks > limits.blocks_max) {
      return fail(ErrorCode::kFull, "{}: request {} exceeds {} blocks in all, with answers; cut the trace", trace.name,
                  i + 1, limits.blocks_max);
    }
  }
  return {};
}

PrefixCache::Request cache_request(const Trace& trace, const TraceRequest& request, bool decode, double time_s) {
  PrefixCache::Request wanted{.path = trace.prompt(request),
                              .prompt_blocks = request.prompt_blocks,
                              .last_is_partial = trace.last_is_partial(request),
                              .time_s = time_s};
  if (!decode) return wanted;
  const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
  if (request.output_blocks > 0) wanted.path = trace.conversation(request);
  wanted.nameless_blocks = static_cast<std::uint32_t>(nameless_blocks(trace, request));
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
    : trace_(trace), options_(options), cache_(options.blocks, trace.unique_blocks(), policy), stop_(std::move(stop)) {}

std::uint32_t Serving::serve(std::uint32_t id, double time_s) {
  const TraceRequest& request = trace_.requests[id];
  const std::uint32_t reused = cache_.serve(cache_request(trace_, request, options_.decode, time_s));
  ++result_.requests;
  result_.blocks_requested += request.prompt_blocks;
  result_.blocks_reused += reused;
  const auto points = [&](std::uint64_t requests) {
    return requests * options_.timeline_points / trace_.requests.size();
  };
  if (points(result_.requests) > points(result_.requests - 1)) {
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
