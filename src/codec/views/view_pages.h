// One head's tokens of a view as pages of halves, which is how scorers, and whoever weighs tokens, read them.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/views/kv_view.h"
#include "codec/views/view_copy.h"
#include "core/aligned_buffer.h"
#include "paging/page_shape.h"

namespace shale {

// Pages of one head, all full but the last. Where the view's blocks are no such pages, they are copies.
struct HeadPages {
  std::vector<PageView> pages;
  AlignedBuffer copies;
};

// Stays where it is; what the view describes must stay, too.
class ViewPages {
 public:
  // Requires a view that passes check(), not opaque, with a head dimension that is a multiple of 8.
  explicit ViewPages(KvView view);
  ViewPages(const ViewPages&) = delete;
  ViewPages& operator=(const ViewPages&) = delete;

  const KvView& view() const { return view_; }
  std::uint32_t tokens() const { return view_.tokens; }
  const PageShape& shape() const { return shape_; }  // of the pages
  // These are thread-safe.
  HeadPages head(std::uint32_t layer, std::uint32_t head) const;
  std::vector<HeadPages> heads(std::uint32_t layer) const;

 private:
  KvView view_;
  bool in_place_;  // the view's blocks are such pages
  PageShape shape_;
  TokenCopies<const std::byte> copies_;  // where they are not
};

}  // namespace shale
