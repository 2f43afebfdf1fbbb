#include "engine/run.h"

#include <algorithm>
#include <utility>

#include "engine/chunk.h"

namespace shale {
namespace {

constexpr std::uint32_t kMeetingChunkTokens = 256;  // so that what a load has left to bring is looked at in time

}  // namespace

Run::Run(RequestId request_id, Request new_request, PagePool& pool, double now_s)
    : id(request_id),
      request(std::move(new_request)),
      sequence(pool),
      sampler(request.sampling),
      stream(request.stop),
      submitted_s(now_s),
      segment_seconds(request.segments.size() + 1),
      captures(request.segments.size()),
      segment_observations(request.segments.size()) {
  const std::uint32_t block_tokens = pool.shape().page_tokens;
  for (const Segment& segment : request.segments) {
    prompt.insert(prompt.end(), segment.tokens.begin(), segment.tokens.end());
    const auto end = static_cast<std::uint32_t>(prompt.size());
    const bool whole = &segment != &request.segments.back() || segment.store;
    segment_end.push_back(whole ? end - end % block_tokens : end);
  }
  response.id = id;
  response.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
}

std::size_t Run::segment_at(std::uint32_t position) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(segment_end, position) - segment_end.begin());
}

void Run::begin_again() {
  asking = false;
  retrieval = Retrieval();
  compress_once_loaded.reset();
  compression.reset();
  sequence.clear();
  computed_from = 0;
  from_tiers = false;
  reproducible = kAllTokens;
  response.cached = CachedTokens();
  response.sources.clear();
}

Run::Stretch Run::next(std::uint32_t chunk_tokens) const {
  if (!prefilling()) return {.tokens = {drawn.back()}, .draws = true};
  const std::uint32_t begin = sequence.length();
  if (!prefilling_prompt()) {
    const std::uint32_t count = next_chunk(static_cast<std::uint32_t>(known()) - begin, chunk_tokens);
    const auto first = drawn.begin() + static_cast<std::ptrdiff_t>(begin - prompt.size());
    return {.tokens = {first, first + count}, .draws = false};
  }
  const std::size_t segment = segment_at(begin);
  auto end = segment < segment_end.size() ? segment_end[segment] : static_cast<std::uint32_t>(prompt.size());
  if (const std::uint32_t until = retrieval.compute_until(); until > begin) {
    end = std::min(end, until);
    chunk_tokens = std::min(chunk_tokens, kMeetingChunkTokens);
  }
  const std::uint32_t count = next_chunk(end - begin, chunk_tokens);
  return {.tokens = {prompt.begin() + begin, prompt.begin() + begin + count},
          .draws = begin + count == prompt.size() && drawn.empty()};
}

}  // namespace shale
