#include "codec/views/view_pages.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace shale {
namespace {

// Whether a view's blocks are head pages of halves.
bool holds_pages(const KvView& view) {
  const KvGeometry& geometry = view.geometry;
  constexpr std::int64_t kHalf = sizeof(Half);
  const std::int64_t row = kHalf * geometry.head_dim, column = kHalf * geometry.block_tokens;
  const std::uint32_t n = geometry.block_tokens;
  return geometry.element == KvElement::kF16 && (n == 8 || n == 16 || n == 32 || n == 64) &&
         view.keys.token_stride == kHalf && view.keys.channel_stride == column && view.values.token_stride == row &&
         view.values.channel_stride == kHalf;
}

}  // namespace

ViewPages::ViewPages(KvView view)
    : view_(std::move(view)),
      in_place_(holds_pages(view_)),
      shape_{.layers = view_.geometry.layers,
             .kv_heads = view_.geometry.kv_heads,
             .head_dim = view_.geometry.head_dim,
             .block_size = in_place_ ? view_.geometry.block_tokens : kBlockTokens} {
  assert(!view_.geometry.opaque());
  if (!in_place_) copies_ = TokenCopies(view_);
}

HeadPages ViewPages::head(std::uint32_t layer, std::uint32_t head) const {
  HeadPages result;
  const auto at = [&](const KvArray<const std::byte>& array, std::uint32_t block) {
    const std::int64_t offset = static_cast<std::int64_t>(view_.physical(block)) * array.block_stride;
    return reinterpret_cast<const Half*>(array.layers[layer] + offset + head * array.head_stride);
  };
  if (in_place_) {
    for (std::uint32_t block = 0; block < view_.blocks(); ++block) {
      result.pages.push_back({at(view_.keys, block), at(view_.values, block)});
    }
    return result;
  }
  assert(shape_.block_size == kBlockTokens);  // so that a page is laid out as a block of rows is
  result.copies = AlignedBuffer(shape_.pages_for(view_.tokens) * shape_.page_bytes());
  HalfBlock block(view_.geometry);
  std::byte* copy = result.copies.data();
  for (std::uint32_t first = 0; first < view_.tokens; first += kBlockTokens, copy += shape_.page_bytes()) {
    const std::uint32_t count = std::min(kBlockTokens, view_.tokens - first);
    std::memcpy(copy, read_tokens(copies_, layer, head, first, count, block).keys, shape_.page_bytes());
    result.pages.push_back(PageView::of(copy, shape_));
  }
  return result;
}

std::vector<HeadPages> ViewPages::heads(std::uint32_t layer) const {
  std::vector<HeadPages> heads;
  for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) heads.push_back(head(layer, h));
  return heads;
}

}  // namespace shale
