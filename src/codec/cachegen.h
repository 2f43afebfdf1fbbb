// How a block of cachegen's codes lies before it is packed, for the quantizer and its calibration. Planes as int8's: a
// token whose scale is not zero is coded by itself, as int8 does; any other, never the first of a group, as differences
// to what its group's first decodes to, in bins.
#pragma once

#include <cstdint>
#include <cstring>

#include "codec/quantizer.h"

namespace shale {

// Groups of a block are 10, 10 and 12 tokens: two left over would not be worth an anchor.
inline constexpr bool begins_group(std::uint32_t token_of_block) {
  return token_of_block == 0 || token_of_block == 10 || token_of_block == 20;
}

// The keys or the values of a block of `tokens` tokens.
template <class Byte>
struct CachegenSide {
  Byte* scales;  // binary16 [tokens], at any address
  Byte* codes;
  std::size_t token_stride, channel_stride;  // of codes

  Half scale(std::uint32_t token) const {
    Half scale;
    std::memcpy(&scale, scales + token * sizeof scale, sizeof scale);
    return scale;
  }
  bool by_itself(std::uint32_t token) const { return (scale(token).bits & 0x7fff) != 0; }
  Byte& code(std::uint32_t token, std::uint32_t channel) const {
    return codes[token * token_stride + channel * channel_stride];
  }
};

template <class Byte>
CachegenSide<Byte> cachegen_side(Byte* block, std::uint32_t tokens, std::uint32_t head_dim, bool values) {
  const std::size_t scales = tokens * sizeof(Half);
  Byte* codes = block + 2 * scales;
  if (!values) return {block, codes, 1, tokens};
  return {block + scales, codes + std::size_t{tokens} * head_dim, head_dim, 1};
}

// Codes -15 … 15 have symbols 1 … 31; symbol 0 stands before any other.
inline constexpr std::size_t kCachegenEscape = 0, kCachegenCentre = 16;
inline std::size_t cachegen_symbol(std::int8_t code) {
  return code > -16 && code < 16 ? static_cast<std::size_t>(code + 16) : kCachegenEscape;
}

inline std::size_t cachegen_block_bytes(std::uint32_t tokens, std::uint32_t head_dim) {
  return tokens * (2 * sizeof(Half) + 2 * std::size_t{head_dim});
}

}  // namespace shale
