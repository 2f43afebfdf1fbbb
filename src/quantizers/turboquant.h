// What turboquant2, turboquant3 and turboquant4 share outside their kernels.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "quantizers/quantizer.h"

namespace shale {

inline constexpr std::uint32_t kRotationMax = 256;  // channels that are rotated together

// Channels that are rotated together and share a norm: all of a head whose dimension is a power of two.
constexpr std::uint32_t rotated_channels(std::uint32_t head_dim) {
  return std::min(kRotationMax, std::uint32_t{1} << std::countr_zero(head_dim));
}

// The rotation of channels [0, n) is signs, then the Walsh–Hadamard matrix over the root of n. Always the same: sign c
// is bit c mod 64 of number c / 64 that SplitMix64 makes of seed 0; a set bit is minus.
inline constexpr auto kRotationSigns = [] {
  std::array<float, kRotationMax> signs{};
  std::uint64_t state = 0, bits = 0;
  for (std::uint32_t c = 0; c < kRotationMax; ++c) {
    if (c % 64 == 0) {
      std::uint64_t z = state += 0x9e3779b97f4a7c15;
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
      z = (z ^ z >> 27) * 0x94d049bb133111eb;
      bits = z ^ z >> 31;
    }
    signs[c] = bits >> c % 64 & 1 ? -1.0f : 1.0f;
  }
  return signs;
}();

// Magnitudes of the optimal scalar quantizer of a Gaussian of variance 1 (Lloyd 1982, Max 1960), in units of 1 / 8,192,
// for 2, 3 and 4 bits with the sign.
inline constexpr float kLevelUnit = 1.0f / 8192;
template <int kBits>
inline constexpr std::array<std::int16_t, 0> kMagnitudes = {};
template <>
inline constexpr auto kMagnitudes<2> = std::to_array<std::int16_t>({3709, 12373});
template <>
inline constexpr auto kMagnitudes<3> = std::to_array<std::int16_t>({2008, 6193, 11009, 17629});
template <>
inline constexpr auto kMagnitudes<4> =
    std::to_array<std::int16_t>({1052, 3179, 5380, 7720, 10291, 13255, 16949, 22385});

class Turboquant : public Quantizer {
 private:
  // Norms of keys and values, then their codes. Codes of 3 bits have their sign in a plane of its own.
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const final {
    const std::size_t vectors = head_dim / rotated_channels(head_dim);
    const std::size_t signs = bits() == 3 ? 1 : 0, code_bits = static_cast<std::size_t>(bits()) - signs;
    return {Plane{vectors, tokens * sizeof(Half)},         Plane{tokens, vectors * sizeof(Half)},
            Plane{head_dim, (tokens * code_bits + 7) / 8}, Plane{tokens, head_dim * code_bits / 8},
            Plane{head_dim, (tokens * signs + 7) / 8},     Plane{tokens, head_dim * signs / 8}};
  }
};

}  // namespace shale
