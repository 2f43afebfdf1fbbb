// One entry of a page table.
#pragma once

#include <bit>
#include <cstdint>

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

}  // namespace shale
