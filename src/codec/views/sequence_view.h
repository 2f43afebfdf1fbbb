// A sequence's blocks as a KvView: how pages of the pool cross to the store and to codecs.
#pragma once

#include <cstdint>
#include <span>

#include "codec/views/kv_view.h"
#include "core/aligned_buffer.h"
#include "core/executor.h"
#include "paging/sequence.h"

namespace shale {

// What views of a pool have in common. Pages of halves are fp16, head by head; pages of int8 are opaque: they are kept
// exactly, and no lossy codec reads them but through a StagedTokens.
KvGeometry geometry_of(const PageShape& shape);

// Tokens [first, + tokens) of a sequence, `first` the first of a block, in the last span in which its heads agree.
// The pool lies in the host's memory; the blocks must stay with the sequence, or a fork of it, for as long as the view
// is used. What is written to must belong to the sequence alone.
KvView view_of(const Sequence& sequence, std::uint32_t first, std::uint32_t tokens);
MutableKvView view_of(Sequence& sequence, std::uint32_t first, std::uint32_t tokens);

// A copy of whole blocks in halves, outside the pool: what a lossy codec reads and writes where pages are int8.
class StagedTokens {
 public:
  // Room for so many tokens; what of it is not written stays zero.
  StagedTokens(const PageShape& shape, std::uint32_t tokens);

  MutableKvView view();
  // Copy from and to the pages of tokens [first, …) of a sequence, as for view_of.
  void read(const Sequence& sequence, std::uint32_t first, Executor& executor);
  void write(Sequence& sequence, std::uint32_t first, Executor& executor);

 private:
  std::byte* page(std::uint32_t layer, std::uint32_t head, std::uint32_t block);

  PageShape halves_;
  std::uint32_t tokens_;
  AlignedBuffer bytes_;
};

}  // namespace shale
