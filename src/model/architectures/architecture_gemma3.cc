// Gemma 3 (Gemma Team 2025, arXiv 2503.19786).
#include <algorithm>

#include "model/architectures/architecture_table.h"

namespace shale {
namespace {

// The largest, known by its layers, divides by the root of a query head's share of the embedding.
float attention_scale(const Hyperparameters& hyper) {
  const std::uint32_t share = std::max(1U, hyper.embedding / hyper.query_heads);
  return 1 / std::sqrt(static_cast<float>(hyper.layers.size() == 62 ? share : hyper.head_dim));
}

}  // namespace

const Architecture kGemma3{.name = "gemma3",
                           .rope_mode = GGML_ROPE_TYPE_NEOX,
                           .head_norms = true,
                           .post_norms = true,
                           .activation = Architecture::Activation::kGelu,
                           .scaled_embedding = true,
                           .window_period = 6,
                           .window_rope_base = 10000,
                           .attention_scale = attention_scale};

}  // namespace shale
