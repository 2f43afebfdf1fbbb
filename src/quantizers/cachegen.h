// How a block of cachegen's codes lies before it is packed, for the quantizer and its calibration. Planes as int8's: a
// token whose scale is not zero is coded by itself, as int8 does; any other, never the first of a group, as differences
// to what its group's first decodes to, in bins.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "quantizers/cachegen_tables.h"
#include "quantizers/quantizer.h"
#include "quantizers/rans.h"

namespace shale {

// The first tokens of a block's groups of 10, 10 and 12: two left over would not be worth an anchor.
inline constexpr std::array<std::uint32_t, 3> kCachegenGroups = {0, 10, 20};
inline constexpr bool begins_group(std::uint32_t token_of_block) {
  return std::ranges::find(kCachegenGroups, token_of_block) != kCachegenGroups.end();
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

// Codes of one full block, and back. A token that strays beyond all bins is coded by itself; what is not finite counts
// as zero.
void encode_cachegen_block(const KvRows<const Half>& rows, const CachegenChannels& channels, std::byte* out,
                           const Ahead& ahead);
void decode_cachegen_block(const std::byte* in, const CachegenChannels& channels, const KvRows<Half>& rows);

// The codes of a token that is coded by differences, packed: channel c's by state c mod kRansStates. Writers go through
// tokens from the last to the first. A code behind an escape takes eight bits as it is.
inline constexpr std::uint32_t kCachegenRawCount = 1u << (kRansBits - 8);
void write_cachegen_differences(RansWriter& to, std::span<const CachegenTables::Channel> channels,
                                const CachegenSide<const std::byte>& side, std::uint32_t token);
void read_cachegen_differences(RansReader& from, std::span<const CachegenTables::Channel> channels,
                               const CachegenSide<std::byte>& side, std::uint32_t token);

inline std::size_t cachegen_block_bytes(std::uint32_t tokens, std::uint32_t head_dim) {
  return tokens * (2 * sizeof(Half) + 2 * std::size_t{head_dim});
}

}  // namespace shale
