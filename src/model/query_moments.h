// Mean and covariance of vectors that come in chunks. Private to this room.
#pragma once

#include <cstdint>
#include <span>

#include "scoring/rope.h"

namespace shale {

// Turns `row` back by the angles in `turns`: cosine and sine of each pair.
void turn_back(const Rope& rope, const float* turns, float* row);

// Joins a chunk of vectors, [count][dim], into the mean of `before` earlier ones and into the upper triangle of
// `scatter` = Σ (x - mean)(x - mean)ᵀ, [dim][dim]. The chunk is centred on its own mean first (Chan, Golub & LeVeque
// 1979), so that a mean far from zero costs no digits; `rows` are left centred.
void join_moments(std::span<float> rows, std::uint32_t dim, std::uint64_t before, float* mean, float* scatter);

}  // namespace shale
