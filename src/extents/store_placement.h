// Decides which variant of every extent lies on which tier: a planner, how much time quality is worth, and what the
// owner knows of qualities and costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/method.h"
#include "core/hash.h"
#include "extents/block_keys.h"
#include "placement/placement_state.h"

namespace shale {

// What the owner tells of blocks in its own memory: it holds so many at least; it has evicted the others; it no longer
// knows.
enum class PoolNews : std::uint8_t { kHeld, kEvicted, kForgotten };

// How blocks lie, or should: a method by its number, a keep of the grid, a tier or kDropped.
struct Variant {
  std::uint32_t method = kFullMethod;
  double keep = 1;
  std::uint32_t tier = kDropped;
  bool operator==(const Variant&) const = default;
};

// All variants of the same blocks are one cached prefix of a PlacementState: what a full tier gives up, and what is
// promoted, is a variant on a tier. Before it is written, an extent that is saved as it is becomes the variant that it
// would be demoted to. Beside what is placed above, the lowest tier keeps the exact extent while it has room, so that
// every loss can be undone.
//
// The functions are called with the store locked, by any of its threads: they must be quick and never call the store.
struct StorePlacement {
  std::string planner = "shale";           // placement.h, planner_names()
  PlannerOptions options = {};             // fixed_method_index: 0 is full, i + 1 is methods[i]
  double alpha = 1;                        // seconds per unit of quality
  double move_s_per_byte = kMoveSPerByte;  // PlacementOptions
  // Methods that extents may become, beside full. One with a scorer can be made of extents that keep its ranking
  // (StoreHints::rankings), or where its scorer reads keys and values alone.
  std::vector<Method> methods = {};
  // The quality of that method at that keep for a run of tokens, [0, 1] against the full cache; nothing where it was
  // not measured, and 0 where it is not good enough: then no extent of the run becomes it. Empty: nothing is known, and
  // all that is saved stays as it is.
  std::function<std::optional<double>(const Hash128& run, const Method& method, double keep)> quality = {};
  // The quality, [0, 1], of an extent that another store made by that method at that keep and left on a shared tier,
  // until `quality` says it: nobody there does. Empty: 0.
  std::function<double(const Method& method, double keep)> quality_found = {};
  // The saver's word holds for extents of which `quality` says nothing. False where other processes that share a tier
  // measure quality in something else: then nothing is known of such extents, and others are not told.
  bool believes_others = true;
  // Seconds that computing so many tokens from that position on takes, where StoreHints::recompute_s said nothing.
  // Empty: more than any load.
  std::function<double(std::uint32_t tokens, std::uint32_t first_position)> recompute_s = {};
  // Seconds that decoding so many bytes at rest takes. Empty: none.
  std::function<double(std::string_view quantizer, std::uint64_t bytes)> decode_s = {};
  // Every call of the placement state, before it is made: a state that they are applied to decides the same.
  std::function<void(const PlacementEvent&)> on_event = {};
};

}  // namespace shale
