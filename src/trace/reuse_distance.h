// Exact reuse distances of a trace's prompts: how many other blocks were asked for between two accesses of a block,
// each counted once. An LRU cache of plain blocks would hit where it holds more than that.
//
// Mattson et al. 1970 (stack distances), with a Fenwick tree over time (Bennett and Kruskal 1975). What makes it fast
// on prompts: a request's path of blocks enters the timeline as one slot, in order, and whatever part of a slot is
// asked for again is the front of what is left of it, since no block comes without those before it. All blocks of that
// part have the same distance: the blocks left in the slot, less one, and those of all later slots. So the work is
// O(parts · log requests), not O(blocks · log blocks).
#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace shale {

// `accesses` accesses of blocks, each at `distance`.
struct ReuseDistance {
  std::uint64_t distance = 0;
  std::uint64_t accesses = 0;
};

// Ascending, every distance once. First accesses have none; they are trace.unique_blocks() where every block is in some
// prompt.
std::vector<ReuseDistance> reuse_distances(const Trace& trace);

// The smallest distance that at least `share` of all accesses in `distances` have or are below; 0 without any.
std::uint64_t distance_quantile(const std::vector<ReuseDistance>& distances, double share);

}  // namespace shale
