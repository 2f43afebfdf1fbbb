// How far two distributions over the vocabulary are apart, position by position.
#pragma once

#include <cstddef>
#include <span>

#include "model/model.h"

namespace shale {

struct Divergence {
  double agreement = 0;  // share of positions where the compressed cache's arg max is the reference token
  double kl = 0;         // mean over positions of KL(full ‖ compressed), nats, ≥ 0
};

// `full` and `compressed`: logits, [positions][vocabulary]; `reference`: one token per position, at least one. Ties of
// the arg max go to the smaller token. A position whose compressed logits are not finite disagrees, at infinite kl.
Divergence divergence(std::span<const float> full, std::span<const float> compressed, std::span<const Token> reference,
                      std::size_t vocabulary);

// The token with the largest logit, the smallest of equals.
Token arg_max(std::span<const float> logits);

}  // namespace shale
