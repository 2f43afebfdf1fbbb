// How likely tokens are, for those who ask.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/model.h"

namespace shale {

// Natural logarithms of probabilities.
struct Logprobs {
  float drawn = 0;  // of the token that was drawn, or that the prompt has there
  std::vector<std::pair<Token, float>> top =
      {};                  // the likeliest tokens, each with its own; among equals the lower first
  std::uint32_t rank = 1;  // of the token in that order; 1 is the likeliest
};

// Of each token of a prompt, given those before it; nothing where that was not computed, as of the first.
using PromptLogprobs = std::vector<std::optional<Logprobs>>;

// By the softmax of the logits: as the model gave them, what was drawn is rated before temperature and penalties, as
// vLLM does where nothing else is configured. Takes time linear in the vocabulary.
Logprobs logprobs_of(std::span<const float> logits, Token drawn, std::uint32_t top);

}  // namespace shale
