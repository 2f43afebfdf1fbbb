// How a stretch of tokens is cut into forward steps.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shale {

// Tokens of the next step, of `left` ≥ 1 still to compute. The last step of a long stretch is not a few tokens alone,
// which would run as decoding does.
inline std::uint32_t next_chunk(std::uint32_t left, std::uint32_t chunk_tokens) {
  const std::uint32_t last_min = std::min(64u, chunk_tokens / 2);
  const std::uint32_t count = std::min(left, chunk_tokens);
  return left > count && left < count + last_min ? left - last_min : count;
}

}  // namespace shale
