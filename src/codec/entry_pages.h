// The pages of an entry, head by head, as if the entry began at slot 0 of a page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/view_pages.h"
#include "paging/page_pool.h"

namespace shale {

class EntryPages {
 public:
  // The entry's first token is in slot `first_slot` of slabs[0]. The slabs must stay referenced.
  EntryPages(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot, std::uint32_t tokens);

  std::uint32_t tokens() const { return tokens_; }
  // Of what `head` returns.
  const PageShape& shape() const { return halves_; }
  // These are thread-safe.
  HeadPages head(std::uint32_t layer, std::uint32_t head) const;
  std::vector<HeadPages> heads(std::uint32_t layer) const;
  // A head's pages as the pool's element has them, `stride` bytes apart; slots beyond the entry's last token are zero.
  void copy_pages(std::uint32_t layer, std::uint32_t head, std::span<std::byte> to, std::size_t stride) const;

 private:
  // The pool's pages that hold the entry.
  std::vector<std::span<const std::byte>> bytes_of(std::uint32_t layer, std::uint32_t head) const;

  const PagePool* pool_;
  PageShape halves_;
  std::vector<SlabId> slabs_;
  std::uint32_t first_slot_, tokens_;
};

}  // namespace shale
