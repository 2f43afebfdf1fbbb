// Entries of a page table, and a head's pages as its sequence's tables have them.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paging/page_pool.h"

namespace shale {

// Only the first `count` slots hold tokens, and those that are `holes` (bit s for slot s < count) were dropped: nobody
// attends to them. Pages in the middle of a table may be partly filled, where heads kept rows of their own.
struct PageSlot {
  PageId page = 0;
  std::uint32_t count = 0;
  std::uint64_t holes = 0;

  std::uint64_t live() const { return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) & ~holes; }
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(std::popcount(live())); }
};

class PageSlots;

class PageSlotIterator {
 public:
  using value_type = PageSlot;
  using difference_type = std::ptrdiff_t;

  PageSlotIterator() = default;
  PageSlotIterator(const PageSlots& slots, std::size_t at) : slots_(&slots), at_(at) {}
  PageSlot operator*() const;
  PageSlotIterator& operator++() {
    ++at_;
    return *this;
  }
  PageSlotIterator operator++(int) { return {*slots_, at_++}; }
  bool operator==(const PageSlotIterator& other) const { return at_ == other.at_; }

 private:
  const PageSlots* slots_ = nullptr;
  std::size_t at_ = 0;
};

// A span of tokens that all heads hold, in whole blocks that are full but for the last.
struct BlockRun {
  std::span<const PoolBlockId> blocks;
  std::uint32_t tokens = 0;
};

// The pages of one (layer, KV head) in order: those of a run of blocks, then the head's own, then those of another run;
// any of the three may be empty. Pages of blocks are computed from the block table, which all heads share. A view, as
// small as a few spans: valid until its sequence changes.
class PageSlots {
 public:
  PageSlots() = default;
  PageSlots(std::span<const PageSlot> own) : PageSlots({}, own, {}, PageShape{}, 0) {}
  PageSlots(const std::vector<PageSlot>& own) : PageSlots(std::span(own)) {}
  // `index`: of the head's pages in their blocks.
  PageSlots(const BlockRun& before, std::span<const PageSlot> own, const BlockRun& after, const PageShape& shape,
            std::uint32_t index)
      : before_(before.blocks.data()),
        own_(own.data()),
        after_(after.blocks.data()),
        first_own_(static_cast<std::uint32_t>(before.blocks.size())),
        first_after_(first_own_ + static_cast<std::uint32_t>(own.size())),
        last_(first_after_ + static_cast<std::uint32_t>(after.blocks.size()) - 1),
        block_size_(shape.block_size),
        before_last_count_(last_count(before)),
        after_last_count_(last_count(after)),
        stride_(shape.pages_per_block()),
        index_(index),
        end_(last_ + 1) {}

  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  PageSlot operator[](std::size_t i) const {
    const std::uint32_t at = begin_ + static_cast<std::uint32_t>(i);
    assert(at < end_);
    if (at >= first_after_) {
      return {after_[at - first_after_] * stride_ + index_, at == last_ ? after_last_count_ : block_size_, 0};
    }
    if (at >= first_own_) return own_[at - first_own_];
    return {before_[at] * stride_ + index_, at + 1 == first_own_ ? before_last_count_ : block_size_, 0};
  }
  PageSlot front() const { return (*this)[0]; }
  PageSlot back() const { return (*this)[size() - 1]; }
  PageSlotIterator begin() const { return {*this, 0}; }
  PageSlotIterator end() const { return {*this, size()}; }

  PageSlots subspan(std::size_t first, std::size_t count) const {
    assert(first + count <= size());
    PageSlots part = *this;
    part.begin_ += static_cast<std::uint32_t>(first);
    part.end_ = part.begin_ + static_cast<std::uint32_t>(count);
    return part;
  }
  PageSlots first(std::size_t count) const { return subspan(0, count); }
  void remove_prefix(std::size_t count) { begin_ += static_cast<std::uint32_t>(count); }

 private:
  std::uint32_t last_count(const BlockRun& run) const {
    return run.tokens - (run.blocks.empty() ? 0 : static_cast<std::uint32_t>(run.blocks.size()) - 1) * block_size_;
  }

  const PoolBlockId* before_ = nullptr;
  const PageSlot* own_ = nullptr;
  const PoolBlockId* after_ = nullptr;
  // Pages are numbered through the three; `last_` is the last of all.
  std::uint32_t first_own_ = 0, first_after_ = 0, last_ = 0;
  std::uint32_t block_size_ = 0, before_last_count_ = 0, after_last_count_ = 0;
  std::uint32_t stride_ = 0, index_ = 0;
  std::uint32_t begin_ = 0, end_ = 0;  // what is in view
};

inline PageSlot PageSlotIterator::operator*() const { return (*slots_)[at_]; }

// Calls `visit(slot)` for each token of a page whose first slot has number `first`, in order.
template <class Visit>
void for_each_token(const PageSlot& page, std::uint32_t first, Visit visit) {
  for (std::uint64_t live = page.live(); live != 0; live &= live - 1) {
    visit(first + static_cast<std::uint32_t>(std::countr_zero(live)));
  }
}

// The same of a whole table, whose slots are numbered page · block_size + slot.
template <class Visit>
void for_each_token(const PageSlots& table, std::uint32_t block_size, Visit visit) {
  for (std::uint32_t p = 0; p < table.size(); ++p) for_each_token(table[p], p * block_size, visit);
}

}  // namespace shale
