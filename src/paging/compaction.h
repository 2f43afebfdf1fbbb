// How the holes that dropped tokens leave in a page table are closed, so that whole pages return to the pool.
//
//   repack     survivors slide forward in order, into the first pages; what follows is free
//   hole_fill  the history stays where it is, and the newest survivors, the last one first, move into its holes, those
//              at the end of a page included; the table's positions are then no longer ascending
//
// Keys carry their rotation, so attention does not care where in a table a token lies. A page that somebody else reads
// is neither written nor moved. Plans are pure functions of one table; Sequence::compact carries them out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "paging/page_slot.h"

namespace shale {

enum class Compaction { kNone, kRepack, kHoleFill };
std::string_view to_string(Compaction compaction);  // "none", "repack", "hole_fill"
Result<Compaction> parse_compaction(std::string_view name);

// `count` consecutive tokens move. Slots are numbered page · block_size + slot, pages as they stand in the table.
struct SlotCopy {
  std::uint32_t from, to, count;
};

struct CompactionPlan {
  std::vector<SlotCopy> copies;     // carried out in this order, no copy overwrites a token that a later one reads
  std::vector<std::uint64_t> live;  // of every page afterwards, bit s for slot s; 0: the page is free
  std::uint32_t slots_copied() const;
  std::uint32_t pages_freed = 0;
};

// `movable[p]`: nobody else holds page p. `newest`: first slot of the newest round, for hole_fill.
CompactionPlan plan_repack(std::span<const PageSlot> table, std::span<const std::uint8_t> movable,
                           std::uint32_t block_size);
CompactionPlan plan_hole_fill(std::span<const PageSlot> table, std::span<const std::uint8_t> movable,
                              std::uint32_t block_size, std::uint32_t newest);

}  // namespace shale
