// Dense numbers for blocks, by the block before and the raw id. Private to the room.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trace/trace.h"

namespace shale {

// An open-addressing table of block numbers, 4 bytes a slot, at most 7/8 full, beside the raw ids, 8 bytes a block;
// parents are the trace's own. Most blocks follow the one before them in every request that has either, and their
// numbers are consecutive: that is tried first and touches no table.
class BlockInterner {
 public:
  // `parents` must outlive the interner and hold blocks of it alone.
  explicit BlockInterner(std::vector<BlockId>& parents) : parents_(parents), slots_(kFirstSlots, kNoBlock) {}

  // The number of `id` after `parent` (kNoBlock: at the start); a new one is the next that is free. kNoBlock when no
  // number is left.
  BlockId intern(BlockId parent, std::uint64_t id) {
    const BlockId next = parent + 1;
    const auto known = static_cast<BlockId>(ids_.size());
    if (next < known && parents_[next] == parent && ids_[next] == id) return next;
    std::size_t slot = mix(parent, id) & (slots_.size() - 1);
    const bool is_new_path = next == known && known > 0;  // the parent was made just now: nothing follows it yet
    for (; slots_[slot] != kNoBlock; slot = (slot + 1) & (slots_.size() - 1)) {
      const BlockId block = slots_[slot];
      if (!is_new_path && parents_[block] == parent && ids_[block] == id) return block;
    }
    if (known == kNoBlock) return kNoBlock;
    slots_[slot] = known;
    parents_.push_back(parent);
    ids_.push_back(id);
    if (ids_.size() > slots_.size() / 8 * 7) grow();
    return known;
  }

 private:
  static constexpr std::size_t kFirstSlots = 1024;

  static std::uint64_t mix(BlockId parent, std::uint64_t id) {
    std::uint64_t h = (id ^ (std::uint64_t{parent} << 32 | parent)) * 0x9e3779b97f4a7c15;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93;
    return h ^ (h >> 32);
  }

  void grow() {
    const std::size_t size = 2 * slots_.size();
    slots_ = {};
    slots_.resize(size, kNoBlock);
    for (BlockId block = 0; block < ids_.size(); ++block) {
      std::size_t slot = mix(parents_[block], ids_[block]) & (size - 1);
      while (slots_[slot] != kNoBlock) slot = (slot + 1) & (size - 1);
      slots_[slot] = block;
    }
  }

  std::vector<BlockId>& parents_;
  std::deque<std::uint64_t> ids_;
  std::vector<BlockId> slots_;
};

}  // namespace shale
