#include "codec/entry_pages.h"

#include <cassert>

#include "codec/token_copy.h"

namespace shale {

EntryPages::EntryPages(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot, std::uint32_t tokens)
    : pool_(&pool), slabs_(std::move(slabs)), first_slot_(first_slot), tokens_(tokens) {
  assert(slabs_.size() == shape().pages_for(first_slot + tokens));
}

HeadPages EntryPages::head(std::uint32_t layer, std::uint32_t head) const {
  HeadPages result;
  for (const SlabId slab : slabs_) {
    result.pages.push_back(pool_->page(pool_->page_of(slab, shape().page_index(layer, head))));
  }
  if (first_slot_ == 0) return result;

  const std::uint32_t count = shape().pages_for(tokens_);
  result.copies = AlignedBuffer(count * shape().page_bytes());
  std::vector<PageView> aligned;
  for (std::uint32_t p = 0; p < count; ++p) {
    Half* keys = reinterpret_cast<Half*>(result.copies.data() + p * shape().page_bytes());
    const MutablePageView page{keys, keys + shape().key_elements()};
    const std::uint32_t first = p * shape().page_tokens;
    gather_tokens(result.pages, shape(), first_slot_ + first, std::min(shape().page_tokens, tokens_ - first),
                  rows_of(page, shape()), 0);
    aligned.push_back({page.keys, page.values});
  }
  result.pages = std::move(aligned);
  return result;
}

}  // namespace shale
