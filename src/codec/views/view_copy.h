// What moves between a view and the codec: whole blocks as they lie at rest, and tokens of one head as rows of halves.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "codec/views/kv_view.h"
#include "codec/views/strided_copy.h"
#include "core/aligned_buffer.h"
#include "quantizers/token_copy.h"

namespace shale {

// Whole blocks between a view and their bytes at rest, bit for bit: to rest from a KvView, from rest to a
// MutableKvView (past the caches: flush_stream() when all is written). Thread-safe; the view must stay in place.
template <class Byte>
class BlockCopies {
 public:
  BlockCopies(const BasicKvView<Byte>& view, KvPacking packing);

  // The first `tokens` tokens of a layer's block, which is geometry.block_bytes() at `packed`; of opaque blocks all.
  template <class Packed>
  void copy(std::uint32_t layer, std::uint32_t block, std::uint32_t tokens, Packed* packed) const {
    if (tokens == view_->geometry.block_tokens) return copy(whole_, layer, block, packed);
    copy(tail_tokens_ == tokens ? tail_ : plan(tokens), layer, block, packed);
  }

 private:
  // Keys and values; where the two make one copy, the second copies nothing.
  using Plan = std::array<StridedCopy, 2>;
  Plan plan(std::uint32_t tokens) const;
  template <class Packed>
  void copy(const Plan& plan, std::uint32_t layer, std::uint32_t block, Packed* packed) const;

  const BasicKvView<Byte>* view_ = nullptr;
  BasicKvView<Byte> packed_;   // one block of one layer at rest, at no address that is ever read
  std::uint32_t tail_tokens_;  // in the view's last block
  Plan whole_, tail_;
};

// Up to kBlockTokens tokens of one head between a view and a block of rows of the view's own element: keys
// [head_dim][kBlockTokens], then values [kBlockTokens][head_dim]. Thread-safe; the view must stay in place.
template <class Byte>
class TokenCopies {
 public:
  TokenCopies() = default;
  explicit TokenCopies(const BasicKvView<Byte>& view);

  const BasicKvView<Byte>& view() const { return *view_; }
  // Tokens [first, first + count) of the view and rows [row, row + count) of the block.
  template <class Rows>
  void copy(std::uint32_t layer, std::uint32_t head, std::uint32_t first, std::uint32_t count, Rows* block,
            std::uint32_t row) const;

 private:
  const BasicKvView<Byte>* view_ = nullptr;
  std::vector<StridedCopy> keys_, values_;  // by number of tokens
};

// A block of one head's rows as halves, whatever the view's element.
class HalfBlock {
 public:
  explicit HalfBlock(const KvGeometry& geometry)
      : element_(geometry.element),
        halves_(geometry.head_dim),
        raw_(element_ == KvElement::kF16 ? 0 : elements(geometry.head_dim) * geometry.element_bytes()) {}

  KvRows<Half> rows(std::uint32_t tokens = kBlockTokens) { return halves_.rows(tokens); }
  // What TokenCopies reads and writes.
  std::byte* raw() {
    return element_ == KvElement::kF16 ? reinterpret_cast<std::byte*>(halves_.rows().keys) : raw_.data();
  }
  // Called after rows came from the view, and before they go to it.
  KvRows<const Half> converted_from(std::uint32_t tokens);
  void convert_to();

 private:
  static std::size_t elements(std::uint32_t head_dim) { return 2 * std::size_t{head_dim} * kBlockTokens; }

  KvElement element_;
  BlockBuffer halves_;
  AlignedBuffer raw_;
};

// Tokens [first, first + count) of one head, at most kBlockTokens, as halves.
KvRows<const Half> read_tokens(const TokenCopies<const std::byte>& copies, std::uint32_t layer, std::uint32_t head,
                               std::uint32_t first, std::uint32_t count, HalfBlock& block);

}  // namespace shale
