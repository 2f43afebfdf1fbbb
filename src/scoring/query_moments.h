// Mean and covariance of a context's queries before RoPE, from all of them at once: for reference data and tests. An
// engine gathers them while it computes the context.
#pragma once

#include <cstdint>
#include <span>

#include "scoring/rope.h"

namespace shale {

// Turns vectors [count][head_dim] at positions first_position, first_position + 1 … back to before RoPE.
void undo_rope(const Rope& rope, std::uint32_t first_position, std::uint32_t head_dim, std::span<float> vectors);

// LayerKv::query_mean and query_covariance of one query head, from its queries before RoPE, [tokens][head_dim]: without
// the first kMomentSinks and without those that are not finite. Zeros where none is left.
void query_moments(std::span<const float> queries, std::uint32_t head_dim, std::span<float> mean,
                   std::span<float> covariance);

}  // namespace shale
