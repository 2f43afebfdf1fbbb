// What a store says of itself: its extents, what becomes of them, and counts.
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

struct StoreTenantStats {
  std::string tenant;
  std::uint64_t bytes = 0;  // at rest, on all tiers but shared ones
  // The bound of Store::set_quota(); extents that were dropped for others of the tenant, and that were not stored, so
  // as to stay within it.
  std::uint64_t bytes_max = 0, dropped_for_room = 0, refused = 0;
  std::uint64_t lookups = 0, blocks_asked = 0, blocks_found = 0, blocks_loaded = 0, blocks_saved = 0;
};

struct StoreTierStats {
  std::string name;
  std::uint64_t extents = 0, chunks = 0, bytes = 0, capacity_bytes = 0;
  std::uint64_t blocks_loaded = 0, bytes_read = 0, bytes_written = 0;
  // Moves that were made: extents that left for a lower tier; came from one; became another method or fewer importance
  // tiers here; were given up here, for good or because they lie elsewhere.
  std::uint64_t demoted = 0, promoted = 0, compressed = 0, removed = 0;
  std::string trouble = {};    // why it is not open yet, or last failed; empty: all is well
  std::string unremoved = {};  // why what was to be removed is still there; empty: all of it is gone
};

struct StoreStats {
  std::vector<StoreTenantStats> tenants;
  std::vector<StoreTierStats> tiers;
  std::uint64_t extents = 0, chunks = 0, index_bytes = 0;  // index_bytes: memory that the index takes
  std::uint64_t saves = 0, blocks_shared = 0;
  std::uint64_t chunks_saving = 0;  // that are still to be stored
  // Saves of which something is still to be written, second copies too, and what that takes, about: what lies nowhere
  // yet counts as if nothing were compressed.
  std::uint64_t saves_left = 0, bytes_left = 0;
  std::uint64_t moves_left = 0;                     // on their way, and one where the placement has more to look at
  std::uint64_t dropped_extents = 0;                // given up everywhere, for others
  std::uint64_t encoded_bytes = 0;                  // at rest
  double encode_seconds = 0, planning_seconds = 0;  // of work; ranking and compressing later count as encoding
  std::uint64_t full_copy_bytes = 0;                // on the lowest tier, of what is placed above
  std::uint64_t extents_failed = 0;                 // to be stored
  std::uint64_t damaged_chunks = 0, damaged_rankings = 0, stale_extents = 0;
  std::uint64_t expired_extents = 0, discovered_extents = 0, events_lost = 0;
  std::uint64_t staged_bytes = 0;
};

}  // namespace shale
