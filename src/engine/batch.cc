#include "engine/batch.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace shale {

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
                         .logits_all = part.chunk.rates,
                         .logits_none = part.chunk.logits_rows() == 0,
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

// Whether that passes the one whose turn it is.
bool BatchBuilder::short_ones_first(std::span<Prompt> prompts) {
  if (prompts.empty() || prompts.front().tokens <= kShortTokens) return false;
  const auto alike =
      std::ranges::find_if(prompts, [&](const Prompt& prompt) { return prompt.rank() != prompts.front().rank(); });
  const auto longer =
      std::stable_partition(prompts.begin(), alike, [](const Prompt& prompt) { return prompt.tokens <= kShortTokens; });
  return longer != prompts.begin();
}

std::vector<BatchPart> BatchBuilder::choose(std::span<const std::unique_ptr<RequestState>> running) {
  std::vector<std::optional<RequestState::Chunk>> chunks(running.size());
  std::vector<Prompt> prompts;
  std::uint32_t decoding = 0;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const RequestState& run = *running[i];
    if (run.decoding()) {
      chunks[i] = run.next(1);
      ++decoding;
    } else if (!run.over && !run.loading()) {
      prompts.push_back({.service = run.share ? run.share->service : 0,
                         .after = -run.request.priority,
                         .meets = run.retrieval.meeting(),
                         .turn = turn(run),
                         .index = i,
                         .tokens = static_cast<std::uint32_t>(run.known()) - run.sequence.length()});
    }
  }
  std::ranges::sort(prompts);
  passed_ = !passed_ && short_ones_first(prompts);
  StepWork work{.decoding = decoding};
  for (const Prompt& prompt : prompts) {
    const RequestState& run = *running[prompt.index];
    const std::uint32_t at = run.sequence.length(), room = room_for(work, at);
    if (work.tokens > 0 && (prompt.tokens > room || work.tokens + prompt.tokens > kShortTokens)) break;
    chunks[prompt.index] = run.next(room);
    work = work.with(static_cast<std::uint32_t>(chunks[prompt.index]->tokens.size()), at);
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
  // With a row of logits for every token it took longer than others will.
  if (std::ranges::any_of(parts, [](const BatchPart& part) { return part.chunk.rates; })) return 0;
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
