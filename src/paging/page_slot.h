// One entry of a page table.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "paging/page_pool.h"

namespace shale {

// Only the first `count` slots hold tokens, and those that are `holes` (bit s for slot s < count) were dropped: nobody
// attends to them. Pages in the middle of a table may be partly filled (strata of a lossy entry start on a page of
// their own).
struct PageSlot {
  PageId page = 0;
  std::uint32_t count = 0;
  std::uint64_t holes = 0;

  std::uint64_t live() const { return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) & ~holes; }
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(std::popcount(live())); }
};

// Calls `visit(slot)` for each token of a page whose first slot has number `first`, in order.
template <class Visit>
void for_each_token(const PageSlot& page, std::uint32_t first, Visit visit) {
  for (std::uint64_t live = page.live(); live != 0; live &= live - 1) {
    visit(first + static_cast<std::uint32_t>(std::countr_zero(live)));
  }
}

// The same of a whole table, whose slots are numbered page · page_tokens + slot.
template <class Visit>
void for_each_token(std::span<const PageSlot> table, std::uint32_t page_tokens, Visit visit) {
  for (std::uint32_t p = 0; p < table.size(); ++p) for_each_token(table[p], p * page_tokens, visit);
}

}  // namespace shale
