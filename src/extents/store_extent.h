// What a store says of what it holds: its extents, and what becomes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/method.h"
#include "core/hash.h"
#include "extents/block_keys.h"

namespace shale {

// Blocks that came to a tier, or went.
struct StoreEvent {
  enum class Kind : std::uint8_t { kStored, kRemoved, kLost };  // kLost: events were dropped; ask anew
  Kind kind = Kind::kStored;
  std::uint32_t tier = 0;
  std::string tenant = {};
  BlockKey parent = {};             // of the first block; zero for a chain's first
  std::uint32_t first_block = 0;    // of the chain
  std::vector<BlockKey> keys = {};  // consecutive blocks of one chain
  std::uint32_t block_tokens = 0;
  bool exact = true;                      // what was stored or removed; of the same blocks both may lie there
  std::vector<std::int32_t> tokens = {};  // of those blocks; empty where they are not known, and of removals
};

// An extent as it lies in the store: one variant of some blocks.
struct StoreExtent {
  Hash128 name, run;
  std::string tenant = {};
  Method method;
  double keep = 1;
  double quality = 1;
  bool exact = true;
  std::uint32_t first_block = 0, blocks = 0;  // of its chain
  std::uint64_t bytes = 0;                    // on each of its tiers
  std::vector<std::uint32_t> tiers = {};      // where it lies, fast to slow
  std::string label = {};
  double frequency = 0;   // of accesses, decayed to now
  double accessed_s = 0;  // seconds since 1970, as the next
  double expires_s = 0;   // 0: never
  bool pinned = false;
};

}  // namespace shale
