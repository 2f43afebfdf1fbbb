// What encoders share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "quantizers/quantizer.h"

namespace shale {

// What one thread encodes or sums in about a millisecond.
inline constexpr std::size_t kBytesPerStep = 4 << 20;
inline constexpr std::size_t kPackingEffort = 16;  // packing a byte, in bytes summed

// How many of the `left` equal pieces of work a step does.
inline std::uint32_t pieces_per_step(std::size_t piece_bytes, std::size_t threads, std::uint32_t left) {
  const std::size_t each = std::max<std::size_t>(1, kBytesPerStep / std::max<std::size_t>(1, piece_bytes));
  return static_cast<std::uint32_t>(std::min<std::size_t>(left, each * threads));
}

inline void fill_padding(const Codes<std::byte>& rest) {
  std::ranges::fill(rest.base, std::byte{0});
  std::ranges::fill(rest.refinement, std::byte{0});
}

}  // namespace shale
