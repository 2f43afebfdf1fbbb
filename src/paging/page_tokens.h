// Tokens in and out of a page, whatever its element. The one place where keys and values become int8 and halves again.
//
// int8 is symmetric to nearest: of the numbers of a token's group of channels, scale = the largest magnitude / 127, in
// fp16, and code = number / scale, rounded. So a number comes back within half a scale (and within 2^-18 where the
// scale is subnormal). A group that holds an infinity or a NaN, or whose scale fp16 cannot hold, comes back as NaN
// throughout. A token's codes depend on nothing but its own numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "paging/page_shape.h"

namespace shale {

// Copies `count` tokens, byte for byte, from `from_slot` on of one page to `to_slot` on of another of the same shape,
// or of the same page, where they may overlap.
void copy_tokens(const PageShape& shape, std::span<const std::byte> from, std::uint32_t from_slot,
                 std::span<std::byte> to, std::uint32_t to_slot, std::uint32_t count);

// Tokens as rows of head_dim floats, `stride` floats apart.
struct TokenRows {
  const float* keys;
  const float* values;
  std::size_t stride;
};

// Writes `count` tokens from `slot` on.
void write_tokens(const PageShape& shape, std::span<std::byte> page, std::uint32_t slot, std::uint32_t count,
                  const TokenRows& rows);
// keys: [head_dim] rows of tokens, key_stride apart; values: [count][head_dim].
void write_tokens(const PageShape& shape, std::span<std::byte> page, std::uint32_t slot, std::uint32_t count,
                  const Half* keys, std::size_t key_stride, const Half* values);

// Reads `count` tokens from `slot` on as halves, laid out likewise.
void read_tokens(const PageShape& shape, std::span<const std::byte> page, std::uint32_t slot, std::uint32_t count,
                 Half* keys, std::size_t key_stride, Half* values);

// The first `count` tokens as a page of halves: the page itself where it is one, else a copy in `memory`, which has
// room for 2 · key_elements().
PageView as_halves(const PageShape& shape, std::span<const std::byte> page, std::uint32_t count,
                   std::span<Half> memory);

}  // namespace shale
