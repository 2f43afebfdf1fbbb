#include "engine/request_state.h"

#include <algorithm>
#include <utility>

#include "engine/chunk.h"

namespace shale {
namespace {

constexpr std::uint32_t kMeetingChunkTokens = 256;  // so that what a load has left to bring is looked at in time
constexpr std::uint32_t kRatedChunkTokens = 128;    // each has a row of logits, as long as the vocabulary

}  // namespace

RequestState::RequestState(RequestId request_id, Request new_request, PagePool& pool, double now_s)
    : id(request_id),
      request(std::move(new_request)),
      sequence(pool),
      sampler(request.sampling),
      stream(request.stop, request.include_stop),
      submitted_s(now_s),
      span_timed(request.spans.size() + 1),
      captures(request.spans.size()),
      span_statistics(request.spans.size()) {
  const std::uint32_t block_tokens = pool.shape().block_size;
  for (const PrefixSpan& span : request.spans) {
    prompt.insert(prompt.end(), span.tokens.begin(), span.tokens.end());
    const auto end = static_cast<std::uint32_t>(prompt.size());
    const bool whole = &span != &request.spans.back() || span.store;
    span_end.push_back(whole ? end - end % block_tokens : end);
  }
  if (request.prompt_logprobs) {
    prompt_logprobs.resize(prompt.size());
    const std::size_t stored = first_stored();
    if (request.policy.named() && stored < span_end.size()) rated_from = span_end[stored];
  }
  sampler.note_prompt(prompt);
  response.id = id;
  response.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
}

std::size_t RequestState::span_at(std::uint32_t position) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(span_end, position) - span_end.begin());
}

std::size_t RequestState::first_stored() const {
  std::size_t span = 0;
  while (span < span_end.size() && !(request.spans[span].store && span_begin(span) < span_end[span])) ++span;
  return span;
}

void RequestState::begin_again() {
  asking = false;
  await_nobody();
  awaits_until_s = std::numeric_limits<double>::infinity();
  retrieval = Retrieval();
  compress_once_loaded.reset();
  repetition.reset();
  compression.reset();
  sequence.clear();
  computed_from = 0;
  from_tiers = false;
  reproducible = kAllTokens;
  lossy_from = kAllTokens;
  std::ranges::fill(span_timed, Timed{});
  if (!drawn.empty()) return;  // its prompt was computed, or found, as the response says
  response.cached = CachedTokens();
  response.sources.clear();
}

RequestState::Chunk RequestState::next(std::uint32_t chunk_tokens) const {
  if (!prefilling()) return {.tokens = {drawn.back()}, .draws = true};
  const std::uint32_t begin = sequence.length();
  if (!prefilling_prompt()) {
    const std::uint32_t count = next_chunk(static_cast<std::uint32_t>(known()) - begin, chunk_tokens);
    const auto first = drawn.begin() + static_cast<std::ptrdiff_t>(begin - prompt.size());
    return {.tokens = {first, first + count}, .draws = false};
  }
  const std::size_t span = span_at(begin);
  auto end = span < span_end.size() ? span_end[span] : static_cast<std::uint32_t>(prompt.size());
  if (const std::uint32_t until = retrieval.compute_until(); until > begin) {
    end = std::min(end, until);
    chunk_tokens = std::min(chunk_tokens, kMeetingChunkTokens);
  }
  const bool rates = request.prompt_logprobs && drawn.empty() && begin >= rated_from;
  if (rates) chunk_tokens = std::min(chunk_tokens, kRatedChunkTokens);
  const std::uint32_t count = next_chunk(end - begin, chunk_tokens);
  return {.tokens = {prompt.begin() + begin, prompt.begin() + begin + count},
          .draws = begin + count == prompt.size() && drawn.empty(),
          .rates = rates};
}

}  // namespace shale
