// The pool: attention's memory, in slabs of pages, reference counted.
//
//   PagePool ── owns ──> arena of slabs
//     slab, whole: the pages of every (layer, KV head) of the same tokens; one reference count
//     slab, split: its pages are handed out one by one; a count per page; whole again once all are free
//   Sequence, PrefixTree ── hold counted references ──> slabs and pages
//
// A page referenced more than once is never written, moved or freed by one of its holders. Not thread-safe: the
// engine's loop owns the pool; only bytes (`page`, `writable_page`) may be touched from its worker threads meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "paging/page_shape.h"

namespace shale {

// Number of a page in the pool: slab · pages_per_slab + index within the slab.
using PageId = std::uint32_t;
using SlabId = std::uint32_t;

class PagePool {
 public:
  // Reserves `bytes` (rounded down to whole slabs, at least one) of address space; memory is touched on first use.
  static Result<std::unique_ptr<PagePool>> create(const PageShape& shape, std::size_t bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const PageShape& shape() const { return shape_; }
  std::uint32_t slabs_total() const;
  std::uint32_t slabs_free() const;
  std::uint32_t pages_free() const;  // pages of free slabs and free pages of split slabs

  // A whole slab with one reference, contents undefined. kFull when none is free.
  Result<SlabId> allocate_slab();
  // A single page with one reference, from a split slab (splits a free slab when none has room).
  Result<PageId> allocate_page();

  void retain_slab(SlabId slab);
  void release_slab(SlabId slab);
  void retain_page(PageId page);
  void release_page(PageId page);
  // Turns a whole slab with exactly one reference into a split one, every page with one reference.
  void split_slab(SlabId slab);
  bool is_split(SlabId slab) const;
  std::uint32_t references(SlabId slab) const;       // of a whole slab
  std::uint32_t page_references(PageId page) const;  // of a page of a split slab, or its slab's

  PageId page_of(SlabId slab, std::uint32_t index) const { return slab * shape_.pages_per_slab() + index; }
  SlabId slab_of(PageId page) const { return page / shape_.pages_per_slab(); }

  // A page's bytes, shape().page_bytes() of them, as its element has them.
  std::span<const std::byte> bytes(PageId page) const;
  // Requires that the page has exactly one reference.
  std::span<std::byte> writable_bytes(PageId page);
  // The same of a pool of halves.
  PageView page(PageId page) const;
  MutablePageView writable_page(PageId page);
  // Copies one slab's bytes to another; `to` must have one reference.
  void copy_slab(SlabId from, SlabId to);
  void copy_page(PageId from, PageId to);

  // Free + used = total; counts are consistent with states. A description of the first violation, or nothing wrong.
  Status check_integrity() const;

 private:
  struct State;
  PagePool(const PageShape& shape, std::unique_ptr<State> state);
  PageShape shape_;
  std::unique_ptr<State> state_;
};

}  // namespace shale
