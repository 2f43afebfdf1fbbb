// How likely tokens are, for those who ask.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/model.h"

namespace shale {

// Natural logarithms of probabilities.
struct Logprobs {
  float drawn = 0;  // of the token that was drawn
  std::vector<std::pair<Token, float>> top =
      {};  // the likeliest tokens, each with its own; among equals the lower first
};

// By the softmax of the logits: as the model gave them, what was drawn is rated before temperature and penalties, as
// vLLM does where nothing else is configured. Takes time linear in the vocabulary.
Logprobs logprobs_of(std::span<const float> logits, Token drawn, std::uint32_t top);

}  // namespace shale
