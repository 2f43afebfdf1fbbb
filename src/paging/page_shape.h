// The shape of a page, and how its bytes lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/half.h"

namespace shale {

// A page holds `page_tokens` tokens of one (layer, KV head): keys, then values, both fp16.
//
//   keys    [head_dim][page_tokens]   one row a channel, so that a SIMD lane is a token
//   values  [page_tokens][head_dim]   one row a token
//
// A *slab* is the pages of all layers and KV heads of the same tokens, layer-major:
// page (layer, head) is number layer · kv_heads + head of its slab.
struct PageShape {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t page_tokens = 16;  // 8, 16, 32 or 64

  std::size_t key_elements() const { return std::size_t{head_dim} * page_tokens; }
  std::size_t page_bytes() const { return 2 * key_elements() * sizeof(Half); }
  std::uint32_t pages_per_slab() const { return layers * kv_heads; }
  std::size_t slab_bytes() const { return page_bytes() * pages_per_slab(); }
  // Bytes of one token's keys and values over all layers and heads.
  std::size_t token_bytes() const { return slab_bytes() / page_tokens; }
  std::uint32_t page_index(std::uint32_t layer, std::uint32_t head) const { return layer * kv_heads + head; }
  std::uint32_t pages_for(std::uint32_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  std::uint32_t slabs_for_pages(std::uint32_t pages) const { return (pages + pages_per_slab() - 1) / pages_per_slab(); }

  bool operator==(const PageShape&) const = default;
};

// One page's bytes, to read.
struct PageView {
  const Half* keys = nullptr;    // [head_dim][page_tokens]
  const Half* values = nullptr;  // [page_tokens][head_dim]
};

// One page's bytes, to write.
struct MutablePageView {
  Half* keys = nullptr;
  Half* values = nullptr;
};

}  // namespace shale
