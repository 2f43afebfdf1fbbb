// The shape of a page, and how its bytes lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/half.h"

namespace shale {

// What keys and values are held as while attention reads them.
enum class PageElement : std::uint8_t { kHalf, kInt8 };
constexpr std::string_view name_of(PageElement element) { return element == PageElement::kInt8 ? "int8" : "fp16"; }

// Channels of one token that share a scale where pages are int8; the last group of a head may be shorter.
inline constexpr std::uint32_t kScaleChannels = 32;

// Where the tokens of a page lie: `rows` rows, `stride` bytes apart from byte `offset` of the page on, in each of which
// a token has `token_bytes` bytes, slot by slot.
struct PagePlane {
  std::size_t offset, rows, stride, token_bytes;
};

// A head page holds `block_size` tokens of one (layer, KV head): keys, then values.
//
//   keys    [head_dim][block_size]   one row a channel, so that a SIMD lane is a token
//   values  [block_size][head_dim]   one row a token
//
// They are fp16, or int8 behind their scales in fp16, each of one token and kScaleChannels channels:
//
//   key scales, value scales  [scale_groups][block_size]   element = code · scale, codes from -127 to 127
//
// No byte belongs to two tokens, so either kind is written, moved and dropped token by token.
//
// A *block* (a block, in names that other rooms use) is the pages of all layers and KV heads of the same tokens,
// layer-major: page (layer, head) is number layer · kv_heads + head of its block.
struct PageShape {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_size = 16;  // 8, 16, 32 or 64
  PageElement element = PageElement::kHalf;

  std::size_t key_elements() const { return std::size_t{head_dim} * block_size; }
  // Scales of one token's keys, or of its values; none of fp16.
  std::uint32_t scale_groups() const {
    return element == PageElement::kInt8 ? (head_dim + kScaleChannels - 1) / kScaleChannels : 0;
  }
  std::size_t key_scales() const { return std::size_t{scale_groups()} * block_size; }
  std::size_t element_bytes() const { return element == PageElement::kInt8 ? 1 : sizeof(Half); }
  // Scales, keys and values; halves have no rows of the first.
  std::array<PagePlane, 3> planes() const {
    const std::size_t scales = 2 * key_scales() * sizeof(Half), keys = key_elements() * element_bytes();
    return {{{0, 2 * std::size_t{scale_groups()}, block_size * sizeof(Half), sizeof(Half)},
             {scales, head_dim, block_size * element_bytes(), element_bytes()},
             {scales + keys, 1, keys, head_dim * element_bytes()}}};
  }
  std::size_t page_bytes() const { return 2 * (key_elements() * element_bytes() + key_scales() * sizeof(Half)); }
  std::uint32_t pages_per_block() const { return layers * kv_heads; }
  std::size_t block_bytes() const { return page_bytes() * pages_per_block(); }
  // Bytes of one token's keys and values over all layers and heads.
  std::size_t token_bytes() const { return block_bytes() / block_size; }
  std::uint32_t page_index(std::uint32_t layer, std::uint32_t head) const { return layer * kv_heads + head; }
  std::uint32_t pages_for(std::uint32_t tokens) const { return (tokens + block_size - 1) / block_size; }
  std::uint32_t blocks_for_pages(std::uint32_t pages) const {
    return (pages + pages_per_block() - 1) / pages_per_block();
  }
  // The same but for the element.
  PageShape with(PageElement other) const { return {layers, kv_heads, head_dim, block_size, other}; }

  bool operator==(const PageShape&) const = default;
};

// One page's bytes, to read: of halves.
struct PageView {
  const Half* keys = nullptr;    // [head_dim][block_size]
  const Half* values = nullptr;  // [block_size][head_dim]

  static PageView of(const std::byte* page, const PageShape& shape) {
    const auto* keys = reinterpret_cast<const Half*>(page);
    return {keys, keys + shape.key_elements()};
  }
};

// One page's bytes, to write.
struct MutablePageView {
  Half* keys = nullptr;
  Half* values = nullptr;

  static MutablePageView of(std::byte* page, const PageShape& shape) {
    Half* keys = reinterpret_cast<Half*>(page);
    return {keys, keys + shape.key_elements()};
  }
};

// One page's bytes, of int8.
template <class Scale, class Code>
struct BasicInt8PageView {
  Scale* key_scales = nullptr;    // [scale_groups][block_size]
  Scale* value_scales = nullptr;  // [scale_groups][block_size]
  Code* keys = nullptr;           // [head_dim][block_size]
  Code* values = nullptr;         // [block_size][head_dim]

  template <class Byte>
  static BasicInt8PageView of(Byte* page, const PageShape& shape) {
    auto* scales = reinterpret_cast<Scale*>(page);
    auto* codes = reinterpret_cast<Code*>(scales + 2 * shape.key_scales());
    return {scales, scales + shape.key_scales(), codes, codes + shape.key_elements()};
  }
};
using Int8PageView = BasicInt8PageView<const Half, const std::int8_t>;
using MutableInt8PageView = BasicInt8PageView<Half, std::int8_t>;

}  // namespace shale
