// How a model turns queries and keys with their positions (Su et al. 2021, arXiv 2104.09864).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

namespace shale {

// Channels of a head are rotated in pairs, pair f by frequency(f) radians a position. Halves, (f, f + dimensions/2), is
// the order of Hugging Face's files and of ggml's qwen2 (NEOX); neighbours, (2f, 2f + 1), that of ggml's llama (NORM).
struct Rope {
  enum class Pairing { kHalves, kNeighbours };

  double base = 10000;
  double scale = 1;              // positions are multiplied by it (linear scaling)
  std::uint32_t dimensions = 0;  // rotated channels of a head, from the first; even. 0: rotation unknown, or none
  Pairing pairing = Pairing::kHalves;
  std::span<const float> factors = {};  // [dimensions / 2], each divides its pair's frequency; empty: none

  std::uint32_t pairs() const { return dimensions / 2; }
  double frequency(std::uint32_t pair) const {
    return scale * std::pow(base, -2.0 * pair / dimensions) / (factors.empty() ? 1.0 : factors[pair]);
  }
  // The channels of a pair: the first is its real part, the second its imaginary one.
  std::pair<std::uint32_t, std::uint32_t> channels(std::uint32_t pair) const {
    return pairing == Pairing::kHalves ? std::pair{pair, pair + pairs()} : std::pair{2 * pair, 2 * pair + 1};
  }
};

}  // namespace shale
