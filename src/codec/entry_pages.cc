#include "codec/entry_pages.h"

#include <algorithm>
#include <cassert>

#include "codec/token_copy.h"

namespace shale {

EntryPages::EntryPages(const PagePool& pool, std::vector<SlabId> slabs, std::uint32_t first_slot, std::uint32_t tokens)
    : pool_(&pool),
      halves_(pool.shape().with(PageElement::kHalf)),
      slabs_(std::move(slabs)),
      first_slot_(first_slot),
      tokens_(tokens) {
  assert(slabs_.size() == shape().pages_for(first_slot + tokens));
}

std::vector<std::span<const std::byte>> EntryPages::bytes_of(std::uint32_t layer, std::uint32_t head) const {
  const HostView view = pool_->host_view();
  std::vector<std::span<const std::byte>> pages;
  for (const SlabId slab : slabs_) pages.push_back(view.bytes(pool_->page_of(slab, shape().page_index(layer, head))));
  return pages;
}

HeadPages EntryPages::head(std::uint32_t layer, std::uint32_t head) const {
  HeadPages result;
  const auto bytes = bytes_of(layer, head);
  if (first_slot_ == 0 && pool_->shape() == halves_) {
    for (const auto page : bytes) result.pages.push_back(PageView::of(page.data(), halves_));
    return result;
  }
  const std::uint32_t page_tokens = halves_.page_tokens;
  result.copies = AlignedBuffer(halves_.pages_for(tokens_) * halves_.page_bytes());
  for (std::uint32_t p = 0; p < halves_.pages_for(tokens_); ++p) {
    std::byte* copy = result.copies.data() + p * halves_.page_bytes();
    const auto page = MutablePageView::of(copy, halves_);
    const std::uint32_t count = std::min(page_tokens, tokens_ - p * page_tokens);
    for_each_run(first_slot_ + p * page_tokens, 0, count, page_tokens, [&](const TokenRun& run) {
      read_tokens(pool_->shape(), bytes[run.from_page], run.from_slot, run.count, page.keys + run.to_slot, page_tokens,
                  page.values + std::size_t{run.to_slot} * halves_.head_dim);
    });
    result.pages.push_back(PageView::of(copy, halves_));
  }
  return result;
}

std::vector<HeadPages> EntryPages::heads(std::uint32_t layer) const {
  std::vector<HeadPages> heads;
  for (std::uint32_t h = 0; h < shape().kv_heads; ++h) heads.push_back(head(layer, h));
  return heads;
}

void EntryPages::copy_pages(std::uint32_t layer, std::uint32_t head, std::span<std::byte> to,
                            std::size_t stride) const {
  const PageShape& shape = pool_->shape();
  const auto from = bytes_of(layer, head);
  for (std::uint32_t first = 0, p = 0; first < tokens_; first += shape.page_tokens, ++p) {
    const std::uint32_t count = std::min(shape.page_tokens, tokens_ - first);
    const std::span<std::byte> page = to.subspan(p * stride, shape.page_bytes());
    if (first_slot_ == 0 && count == shape.page_tokens) {
      std::ranges::copy(from[p], page.begin());
    } else {
      std::ranges::fill(page, std::byte{0});
      copy_run(shape, from, first_slot_ + first, {&page, 1}, 0, count);
    }
  }
}

}  // namespace shale
