// The pages of an entry, head by head, as if the entry began at slot 0 of a page.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.h"
#include "paging/page_pool.h"

namespace shale {

// One head's pages, all full but the last. Where the entry begins inside a page they are copies.
struct HeadPages {
  std::vector<PageView> pages;
  AlignedBuffer copies;
};

class EntryPages {
 public:
  // The entry's first token is in slot `first_slot` of slabs[0]. The slabs must stay referenced.
  EntryPages(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot, std::uint32_t tokens);

  std::uint32_t tokens() const { return tokens_; }
  const PageShape& shape() const { return pool_->shape(); }
  // Thread-safe.
  HeadPages head(std::uint32_t layer, std::uint32_t head) const;

 private:
  const PagePool* pool_;
  std::vector<SlabId> slabs_;
  std::uint32_t first_slot_, tokens_;
};

}  // namespace shale
