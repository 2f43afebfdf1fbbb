// KvView: keys and values where an engine holds them. It is all that crosses between an engine and the store, and
// describes Shale's head pages, the blocks of vLLM and its like, and plain arrays [layers][kv_heads][tokens][head_dim]
// by the same numbers: base pointers, strides and a block table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

// Elements of keys and values. Opaque blocks are bytes that nobody but their engine understands: they are kept exactly,
// and no lossy codec ever sees them.
enum class KvElement : std::uint8_t { kF16 = 0, kBf16 = 1, kF32 = 2, kOpaque = 3 };
std::string_view name_of(KvElement element);  // "fp16", "bf16", "fp32", "opaque"

// What every view of one engine's cache has in common.
struct KvGeometry {
  KvElement element = KvElement::kF16;
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;  // opaque: 0
  std::uint32_t head_dim = 0;  // opaque: 0
  std::uint32_t block_tokens = 16;
  // Bytes of an opaque block, and of no other, in a layer's array of keys and in its array of values. The second is 0
  // where one array holds both; the first never is.
  std::array<std::uint32_t, 2> opaque_bytes = {};

  bool opaque() const { return element == KvElement::kOpaque; }
  std::size_t element_bytes() const;  // opaque: 1
  // Bytes of one layer's block, in the array of keys, of values, and in both.
  std::size_t key_bytes() const;
  std::size_t value_bytes() const;
  std::size_t block_bytes() const { return key_bytes() + value_bytes(); }
  // Bytes of all layers' keys and values of `tokens` tokens, whole blocks.
  std::size_t bytes(std::uint32_t tokens) const { return block_bytes() * layers * (tokens / block_tokens); }

  // kInvalidArgument for what no model has: a zero, more than 1,024 layers or heads, more than 4,096 channels or
  // tokens a block; numbers of heads where blocks are opaque. No product of the sizes of a geometry that passes, and of
  // at most 2^26 tokens, overflows.
  Status check() const;
  bool operator==(const KvGeometry&) const = default;
};

// How blocks lie at rest, in exact extents. Bytes are copied run by run where a view lies likewise, and element by
// element where it does not.
enum class KvPacking : std::uint8_t {
  kHeadPages = 0,    // [kv_heads]{keys [head_dim][block_tokens], values [block_tokens][head_dim]}: Shale's pool
  kTokensHeads = 1,  // keys [block_tokens][kv_heads][head_dim], values the same: vLLM, "NHD"
  kHeadsTokens = 2,  // keys [kv_heads][block_tokens][head_dim], values the same: plain arrays, "HND"
};

// The keys, or the values, of all layers. Strides are in bytes and multiples of an element; those of a dimension of one
// are not read. Opaque blocks have a block stride only.
template <class Byte>
struct KvArray {
  std::vector<Byte*> layers;  // where physical block 0 begins: its token 0, head 0, channel 0
  std::int64_t block_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t channel_stride = 0;
};

// A run of tokens: logical block i of it lies at physical block block_table[i], or at i where the table is empty; its
// first token is the first of logical block 0. Copying a view copies numbers, not bytes; whoever holds one sees to it
// that the memory stays. Nothing is written through a `KvView`.
template <class Byte>
struct BasicKvView {
  KvGeometry geometry;
  KvArray<Byte> keys, values;  // no values' layers where opaque blocks are in one array
  std::vector<std::uint32_t> block_table;
  std::uint32_t physical_blocks = 0;  // that the arrays hold; 0: not known, and the table is trusted
  std::uint32_t tokens = 0;           // in the run, at least one and at most 2^26

  std::uint32_t blocks() const { return (tokens + geometry.block_tokens - 1) / geometry.block_tokens; }
  std::size_t physical(std::uint32_t block) const { return block_table.empty() ? block : block_table[block]; }
  // Tokens [first, first + count) of the run; `first` is a multiple of the block.
  BasicKvView part(std::uint32_t first, std::uint32_t count) const;

  // kInvalidArgument, with what is wrong, for a geometry that cannot be, missing bases, a table that is too short or
  // names a block beyond `physical_blocks`, strides that are negative, no multiple of an element, or let two elements
  // of an array share a byte, and offsets beyond 2^63; where the view is written to, also for a block that the table
  // names twice. Arrays that overlap one another are the caller's to avoid.
  Status check() const;
};

using KvView = BasicKvView<const std::byte>;
using MutableKvView = BasicKvView<std::byte>;

KvView readable(const MutableKvView& view);

// `base` as blocks at rest: [layers][blocks] of `packing`, whole blocks for `tokens` tokens. Opaque blocks: keys'
// bytes, then values'.
template <class Byte>
BasicKvView<Byte> packed_view(const KvGeometry& geometry, KvPacking packing, Byte* base, std::uint32_t tokens);

// Two plain arrays [layers][kv_heads][tokens][head_dim]; `tokens` a multiple of the block. Not for opaque blocks.
template <class Byte>
BasicKvView<Byte> plain_view(const KvGeometry& geometry, Byte* keys, Byte* values, std::uint32_t tokens);

extern template struct BasicKvView<const std::byte>;
extern template struct BasicKvView<std::byte>;

}  // namespace shale
