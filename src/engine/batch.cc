#include "engine/batch.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace shale {
namespace {

// Tokens of short prompts that are computed together: a few more hardly make a step longer.
constexpr std::uint32_t kTogetherMax = 64;

}  // namespace

StepSequence::Role BatchPart::role() const {
  using enum StepSequence::Role;
  if (length < run->prompt.size()) return kPrompt;
  if (run->request.policy.exact) return kAnswer;
  return prefills() ? kPrompt : kEither;
}

std::vector<StepSequence> step_sequences(std::span<const BatchPart> parts) {
  std::vector<StepSequence> sequences;
  for (const BatchPart& part : parts) {
    sequences.push_back({.sequence = &part.run->sequence,
                         .tokens = part.chunk.tokens,
                         .logits_all = false,
                         .logits_none = !part.chunk.draws,
                         .role = part.role(),
                         .capture = part.capture,
                         .live = part.run->budget ? part.run->budget->capture() : nullptr});
  }
  return sequences;
}

bool BatchBuilder::any(std::span<const std::unique_ptr<RequestState>> running) {
  return std::ranges::any_of(running, [](const auto& run) { return !run->over && !run->loading(); });
}

// The least goes first. Of two, both have waited as long from the later one's arrival on.
double BatchBuilder::turn(const RequestState& run) const {
  const std::uint32_t at = run.sequence.length();
  return costs_.prefill_s(static_cast<std::uint32_t>(run.known()) - at, at) + kWaitWorth * run.submitted_s;
}

std::vector<BatchPart> BatchBuilder::choose(std::span<const std::unique_ptr<RequestState>> running) const {
  std::vector<std::optional<RequestState::Chunk>> chunks(running.size());
  // The one whose turn it is comes first: of the tenant that was served least, of its highest priority.
  std::vector<std::tuple<double, int, double, std::size_t>> prompts;
  std::uint32_t decoding = 0;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const RequestState& run = *running[i];
    if (run.decoding()) {
      chunks[i] = run.next(1);
      ++decoding;
    } else if (!run.over && !run.loading()) {
      prompts.emplace_back(run.share ? run.share->service : 0, -run.request.priority, turn(run), i);
    }
  }
  std::ranges::sort(prompts);
  StepWork work{.decoding = decoding};
  for (const auto& [service, priority, turn, i] : prompts) {
    const RequestState& run = *running[i];
    const std::uint32_t at = run.sequence.length(), left = static_cast<std::uint32_t>(run.known()) - at;
    const std::uint32_t room = room_for(work, at);
    if (work.tokens > 0 && (left > room || work.tokens + left > kTogetherMax)) break;
    chunks[i] = run.next(room);
    work = work.with(static_cast<std::uint32_t>(chunks[i]->tokens.size()), at);
  }

  std::vector<BatchPart> parts;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (!chunks[i]) continue;
    RequestState& run = *running[i];
    parts.push_back({.run = &run, .chunk = std::move(*chunks[i]), .length = run.sequence.length()});
  }
  return parts;
}

// Beside those who decode there is less room in a step.
std::uint32_t BatchBuilder::room_for(const StepWork& work, std::uint32_t depth) const {
  const std::uint32_t used = work.decoding + work.tokens;
  const std::uint32_t room = std::max(chunk_tokens_, used + 1) - used;
  return bounds_ && work.decoding > 0 ? std::min(chunks_.tokens(work, depth), room) : room;
}

double BatchBuilder::prompt_slowdown(std::uint32_t decoding, std::uint32_t depth) const {
  if (!bounds_ || decoding == 0) return 1;
  return std::max(1.0, chunks_.token_s(decoding, depth) * chunk_tokens_ / costs_.prefill_s(chunk_tokens_, depth));
}

double BatchBuilder::took(std::span<const BatchPart> parts, double seconds) {
  StepWork work;
  for (const BatchPart& part : parts) {
    if (part.prefills()) {
      work = work.with(part.prompt_tokens(), part.length);
    } else {
      ++work.decoding;
    }
  }
  // Whole chunks, which nobody decodes beside, are computed in another way.
  if (work.decoding > 0) chunks_.took(work, seconds);
  return work.tokens == 0 ? 0 : std::max(0.0, seconds - chunks_.decode_s(work.decoding));
}

// What is above decoding alone, as that was measured; where it never was, as it is estimated.
double BatchBuilder::took_with_guest(std::uint32_t decoding, std::uint32_t tokens, std::uint64_t depth,
                                     double seconds) {
  const double decode_s = chunks_.decode_s(decoding);
  const double more_s = decode_s > 0 ? seconds - decode_s : guest_seconds(decoding, tokens, depth);
  chunks_.took_with_guest({decoding, tokens, depth}, seconds);
  return std::clamp(more_s, 0.0, seconds);
}

}  // namespace shale
