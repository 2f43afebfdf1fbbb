#include "engine/batch.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

// Tokens of short prompts that are computed together: a few more hardly make a step longer.
constexpr std::uint32_t kTogetherMax = 64;

}  // namespace

std::vector<StepSequence> step_sequences(std::span<const BatchPart> parts) {
  std::vector<StepSequence> sequences;
  for (const BatchPart& part : parts) {
    sequences.push_back({.sequence = &part.run->sequence,
                         .tokens = part.stretch.tokens,
                         .logits_all = false,
                         .logits_none = !part.stretch.draws,
                         .capture = part.capture,
                         .live = part.run->budget ? part.run->budget->capture() : nullptr});
  }
  return sequences;
}

bool BatchBuilder::any(std::span<const std::unique_ptr<Run>> running) {
  return std::ranges::any_of(running, [](const auto& run) { return !run->over && !run->loading(); });
}

// The least goes first. Of two, both have waited as long from the later one's arrival on.
double BatchBuilder::turn(const Run& run) const {
  const std::uint32_t at = run.sequence.length();
  return costs_.prefill_s(static_cast<std::uint32_t>(run.known()) - at, at) + kWaitWorth * run.submitted_s;
}

std::vector<BatchPart> BatchBuilder::choose(std::span<const std::unique_ptr<Run>> running) const {
  struct Share {
    std::size_t place;
    double turn;
    std::uint32_t tokens;
  };
  std::vector<Share> shares, prompts;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i]->over || running[i]->loading()) continue;
    if (running[i]->prefilling()) {
      prompts.push_back({i, turn(*running[i]), 0});
    } else {
      shares.push_back({i, 0, 1});
    }
  }
  std::ranges::sort(prompts, [&](const Share& a, const Share& b) {
    const int first = running[a.place]->request.priority, second = running[b.place]->request.priority;
    return first != second ? first > second : std::pair(a.turn, a.place) < std::pair(b.turn, b.place);
  });
  const std::uint32_t room = chunk_tokens(static_cast<std::uint32_t>(shares.size()));
  std::uint32_t taken = 0;
  for (Share& prompt : prompts) {
    const Run& run = *running[prompt.place];
    const auto left = static_cast<std::uint32_t>(run.known()) - run.sequence.length();
    if (taken > 0 && taken + left > std::min(room, kTogetherMax)) break;
    prompt.tokens = room - taken;
    taken += static_cast<std::uint32_t>(run.next(prompt.tokens).tokens.size());
    shares.push_back(prompt);
  }
  std::ranges::sort(shares, {}, &Share::place);

  std::vector<BatchPart> parts;
  for (const Share& share : shares) {
    Run& run = *running[share.place];
    parts.push_back({.run = &run, .stretch = run.next(share.tokens), .length = run.sequence.length()});
  }
  return parts;
}

// Beside those who decode there is less room in a step.
std::uint32_t BatchBuilder::chunk_tokens(std::uint32_t decoding) const {
  const std::uint32_t room = std::max(chunk_tokens_, decoding + 1) - decoding;
  return bounds_ && decoding > 0 ? std::min(chunks_.tokens(), room) : room;
}

double BatchBuilder::took(std::span<const BatchPart> parts, double seconds) {
  std::uint32_t decoding = 0, tokens = 0;
  for (const BatchPart& part : parts) {
    if (part.prefills()) {
      tokens += static_cast<std::uint32_t>(part.stretch.tokens.size());
    } else {
      ++decoding;
    }
  }
  if (tokens == 0) {
    chunks_.decoded(decoding, seconds);
    return 0;
  }
  if (bounds_ && decoding > 0) chunks_.mixed(decoding, tokens, seconds);
  return std::max(0.0, seconds - chunks_.decode_s(decoding));
}

}  // namespace shale
