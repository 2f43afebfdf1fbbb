// What one forward step computes: a token of everyone who decodes, and a chunk of the first prompt that is not done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "engine/run.h"
#include "model/model.h"

namespace shale {

// One run's share of a step.
struct BatchPart {
  Run* run = nullptr;
  Run::Stretch stretch;
  std::uint32_t length = 0;    // of its sequence before the step
  Capture* capture = nullptr;  // what is stored of the prompt is watched
};

// As the model takes them; views of the parts, which stay where they are meanwhile.
std::vector<StepSequence> step_sequences(std::span<const BatchPart> parts);

class BatchBuilder {
 public:
  // `chunk_slowdown`: EngineOptions.
  BatchBuilder(std::uint32_t chunk_tokens, double chunk_slowdown)
      : chunk_tokens_(chunk_tokens), slowdown_(chunk_slowdown), chunks_(chunk_tokens) {}

  // Of those under way, in their order, who takes part next: none that is loading.
  static std::vector<Run*> choose(std::span<const std::unique_ptr<Run>> running);
  // Tokens of a prompt in a step in which so many decode.
  std::uint32_t chunk_tokens(std::uint32_t decoding) const;
  // Learns from a step what the next may hold.
  void took(std::span<const BatchPart> parts, std::uint32_t decoding, double seconds);

 private:
  bool bounded(std::uint32_t decoding) const { return decoding > 0 && slowdown_ > 0; }

  std::uint32_t chunk_tokens_;
  double slowdown_;
  ChunkControl chunks_;
};

}  // namespace shale
