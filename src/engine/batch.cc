#include "engine/batch.h"

#include <algorithm>

namespace shale {

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

std::vector<Run*> BatchBuilder::choose(std::span<const std::unique_ptr<Run>> running) {
  std::vector<Run*> chosen;
  const Run* prefilling = nullptr;
  for (const auto& run : running) {
    if (run->over || run->loading() || (run->prefilling() && prefilling)) continue;
    if (run->prefilling()) prefilling = run.get();
    chosen.push_back(run.get());
  }
  return chosen;
}

// Beside those who decode there is less room in a step.
std::uint32_t BatchBuilder::chunk_tokens(std::uint32_t decoding) const {
  const std::uint32_t room = std::max(chunk_tokens_, decoding + 1) - decoding;
  return bounded(decoding) ? std::min(chunks_.tokens(), room) : room;
}

void BatchBuilder::took(std::span<const BatchPart> parts, std::uint32_t decoding, double seconds) {
  if (parts.size() == decoding) {
    chunks_.decoded(decoding, seconds);
  } else if (bounded(decoding) && parts.size() > 1) {
    std::size_t tokens = 0;
    for (const BatchPart& part : parts) tokens += part.stretch.tokens.size();
    const auto others = static_cast<std::uint32_t>(parts.size() - 1);
    chunks_.mixed(others, static_cast<std::uint32_t>(tokens) - others, seconds, slowdown_);
  }
}

}  // namespace shale
