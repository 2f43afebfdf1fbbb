// Copies of tokens out of pages, and between blocks and anything else laid out as KvRows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/aligned_buffer.h"
#include "paging/page_shape.h"
#include "quantizers/quantizer.h"

namespace shale {

// Copies tokens [first, first + count) of `from` to tokens [to_first, …) of `to`.
inline void copy_tokens(const KvRows<const Half>& from, std::uint32_t first, const KvRows<Half>& to,
                        std::uint32_t to_first, std::uint32_t count) {
  const Half* key = from.keys + first;
  Half* to_key = to.keys + to_first;
  const auto copy_keys = [&](std::size_t bytes) {
    for (std::uint32_t c = 0; c < from.head_dim; ++c, key += from.key_stride, to_key += to.key_stride) {
      std::memcpy(to_key, key, bytes);
    }
  };
  // The usual copy, of a size known to the compiler, is a vector's load and store.
  if (count == 16) {
    copy_keys(16 * sizeof(Half));
  } else if (count == 1) {
    copy_keys(sizeof(Half));
  } else {
    copy_keys(count * sizeof(Half));
  }
  std::memcpy(to.values + std::size_t{to_first} * to.head_dim, from.values + std::size_t{first} * from.head_dim,
              std::size_t{count} * from.head_dim * sizeof(Half));
}

inline KvRows<const Half> rows_of(const PageView& page, const PageShape& shape) {
  return {page.keys, page.values, shape.block_size, shape.block_size, shape.head_dim};
}

// Tokens [first, first + count) of a run of pages, all full but the last, to tokens [to_first, …) of `to`.
inline void gather_tokens(std::span<const PageView> pages, const PageShape& shape, std::uint32_t first,
                          std::uint32_t count, const KvRows<Half>& to, std::uint32_t to_first) {
  while (count > 0) {
    const std::uint32_t slot = first % shape.block_size, run = std::min(count, shape.block_size - slot);
    copy_tokens(rows_of(pages[first / shape.block_size], shape), slot, to, to_first, run);
    first += run;
    to_first += run;
    count -= run;
  }
}

// Room for one block of one head, in the cache's first levels.
class BlockBuffer {
 public:
  explicit BlockBuffer(std::uint32_t head_dim)
      : head_dim_(head_dim), memory_(2 * std::size_t{head_dim} * kBlockTokens * sizeof(Half)) {}

  KvRows<Half> rows(std::uint32_t tokens = kBlockTokens) {
    Half* keys = reinterpret_cast<Half*>(memory_.data());
    return {keys, keys + std::size_t{head_dim_} * kBlockTokens, kBlockTokens, tokens, head_dim_};
  }
  KvRows<const Half> const_rows(std::uint32_t tokens = kBlockTokens) {
    const KvRows<Half> all = rows(tokens);
    return {all.keys, all.values, all.key_stride, tokens, head_dim_};
  }

 private:
  std::uint32_t head_dim_;
  AlignedBuffer memory_;
};

}  // namespace shale
