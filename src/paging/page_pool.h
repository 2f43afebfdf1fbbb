// The block pool: attention's memory, in blocks of head pages, reference counted.
//
//   PagePool ── owns ──> memory of a device, in blocks
//     block, whole: the pages of every (layer, KV head) of the same tokens; one reference count
//     block, split: its pages are handed out one by one; a count per page; whole again once all are free
//   Sequence, PrefixTree ── hold counted references ──> blocks and pages
//
// Names say block for block. A page referenced more than once is never written, moved or freed by one of its holders.
// Not thread-safe: the engine's loop owns the pool; only bytes (copies and `host_view`) may be touched from its worker
// threads meanwhile.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "paging/device.h"
#include "paging/page_shape.h"

namespace shale {

// Number of a page in the pool: block · pages_per_block + index within the block.
using PageId = std::uint32_t;
using PoolBlockId = std::uint32_t;

class PagePool;

// The pages of a pool that lies in the host's memory, as kernels on the CPU read them. Valid while the pool lives.
class HostView {
 public:
  const PageShape& shape() const { return *shape_; }
  // A page's bytes, shape().page_bytes() of them, as its element has them.
  std::span<const std::byte> bytes(PageId page) const { return {begin_ + page * page_bytes_, page_bytes_}; }
  // The same of a pool of halves.
  PageView page(PageId page) const {
    assert(shape_->element == PageElement::kHalf);
    return PageView::of(bytes(page).data(), *shape_);
  }

 protected:
  friend class PagePool;
  HostView(const PageShape& shape, std::byte* begin) : shape_(&shape), begin_(begin), page_bytes_(shape.page_bytes()) {}

  const PageShape* shape_;
  std::byte* begin_;
  std::size_t page_bytes_;
};

// And write them. Requires of each page that it has exactly one reference.
class WritableHostView : public HostView {
 public:
  std::span<std::byte> writable_bytes(PageId page) const;
  MutablePageView writable_page(PageId page) const {
    assert(shape_->element == PageElement::kHalf);
    return MutablePageView::of(writable_bytes(page).data(), *shape_);
  }

 private:
  friend class PagePool;
  WritableHostView(const PagePool& pool, const PageShape& shape, std::byte* begin)
      : HostView(shape, begin), pool_(&pool) {}

  const PagePool* pool_;
};

class PagePool {
 public:
  // Takes `bytes` (rounded down to whole blocks, at least one) of the device's memory. kInvalidArgument for a shape
  // that attention has no kernels for.
  static Result<std::unique_ptr<PagePool>> create(const PageShape& shape, std::size_t bytes,
                                                  const Device& device = HostDevice());
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const PageShape& shape() const { return shape_; }
  std::uint32_t blocks_total() const;
  std::uint32_t blocks_free() const;
  std::uint32_t pages_free() const;  // pages of free blocks and free pages of split blocks

  // A whole block with one reference, contents undefined. kFull when none is free.
  Result<PoolBlockId> allocate_block();
  // A single page with one reference, from a split block (splits a free block when none has room).
  Result<PageId> allocate_page();

  void retain_block(PoolBlockId block) { retain_blocks({&block, 1}); }
  void release_block(PoolBlockId block) { release_blocks({&block, 1}); }
  void retain_blocks(std::span<const PoolBlockId> blocks);
  void release_blocks(std::span<const PoolBlockId> blocks);
  void retain_page(PageId page);
  void release_page(PageId page);
  // Turns a whole block with exactly one reference into a split one, every page with one reference.
  void split_block(PoolBlockId block);
  bool is_split(PoolBlockId block) const;
  std::uint32_t references(PoolBlockId block) const;  // of a whole block
  std::uint32_t page_references(PageId page) const;   // of a page of a split block, or its block's
  // Times that somebody began or ceased to share a block or a page: until the next, every reference is as it was but
  // for those of what was free, or is by now.
  std::uint64_t sharings() const;

  PageId page_of(PoolBlockId block, std::uint32_t index) const { return block * shape_.pages_per_block() + index; }
  PoolBlockId block_of(PageId page) const { return page / shape_.pages_per_block(); }

  // Copies, in the order in which they are asked for (paging/device.h). What is copied to has one reference; a page on
  // the host's side is shape().page_bytes() bytes, its caller's until `fence` has returned.
  void copy_block(PoolBlockId from, PoolBlockId to);
  void copy_page(PageId from, PageId to);
  // `count` tokens from one slot on to another; of the same page, too, where they may overlap.
  void copy_tokens(PageId from, std::uint32_t from_slot, PageId to, std::uint32_t to_slot, std::uint32_t count);
  void copy_in(std::span<const std::byte> from, PageId to);
  void copy_out(PageId from, std::span<std::byte> to) const;
  void fence() const { memory_->fence(); }

  // The door for kernels on the CPU. Requires a pool in the host's memory.
  HostView host_view() const { return {shape_, host_begin()}; }
  WritableHostView host_view() { return {*this, shape_, host_begin()}; }

  // Free + used = total; counts are consistent with states. A description of the first violation, or nothing wrong.
  Status check_integrity() const;

 private:
  struct State;
  PagePool(const PageShape& shape, std::unique_ptr<DeviceMemory> memory, std::unique_ptr<State> state);
  std::byte* host_begin() const {
    assert(memory_->host_view());
    return memory_->host_view();
  }

  PageShape shape_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<State> state_;
};

inline std::span<std::byte> WritableHostView::writable_bytes(PageId page) const {
  assert(pool_->page_references(page) == 1);
  return {begin_ + page * page_bytes_, page_bytes_};
}

}  // namespace shale
