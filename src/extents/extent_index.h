// What a store knows: which blocks lie in which extents, on which tiers. No I/O, no clock.
//
// A chunk is found by the name of its first block; of its other blocks the index keeps 32 bits each, by which it tells
// how far a chain goes along with the chunk. Both are hints: manifests, which are read before anything is loaded, hold
// whole keys. About 100 bytes a chunk of 16 blocks in extents of several chunks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/views/kv_view.h"
#include "core/error.h"
#include "core/hash.h"
#include "extents/block_keys.h"
#include "extents/id_table.h"

namespace shale {

inline constexpr std::uint32_t kStoreTiersMax = 8;
inline constexpr std::uint32_t kChunksMax = 16;    // an extent's
inline constexpr std::uint32_t kBlocksMax = 8192;  // an extent's

using ExtentId = std::uint32_t;
inline constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

// The owner of an extent: a namespace with its geometry, and a tenant in it. Names of equal blocks differ between
// realms.
struct Realm {
  Hash128 hash;
  std::string tenant;
  bool operator==(const Realm&) const = default;
};

// `chunk_tokens`: of a store's chunks.
Hash128 realm_hash(std::string_view name_space, const KvGeometry& geometry, std::uint32_t chunk_tokens,
                   std::string_view tenant);

// The name of a chunk: of its first block, in a realm.
std::uint64_t chunk_tag(const BlockKey& first_block, const Hash128& realm);
// Tells a block from others that follow the same one.
std::uint32_t block_print(const BlockKey& key);

// What is known of an extent, as it is logged and handed around.
struct ExtentFacts {
  Hash128 name;
  Hash128 run;
  std::string label = {};
  std::string method = "full";
  std::string rankings = {};  // kept beside it: names, each followed by a comma
  float keep = 1;
  float quality = 1;
  bool exact = true;
  std::uint64_t bytes = 0;  // of all blobs and the manifest, as files or buffers hold them
  float recompute_s = 0;
  float frequency = 1;            // of accesses, at `accessed_s`
  double accessed_s = 0;          // wall clock, as all times here
  double expires_s = 0;           // 0: never
  std::uint32_t first_block = 0;  // of the chain
  std::uint32_t chunk_blocks = 0;
  std::vector<std::uint64_t> tags;    // of each chunk
  std::vector<std::uint32_t> prints;  // of each block; all chunks have chunk_blocks but the last
  bool operator==(const ExtentFacts&) const = default;
};
// The tags and prints of consecutive blocks.
void name_chunks(std::span<const BlockKey> keys, const Hash128& realm, std::uint32_t chunk_blocks, ExtentFacts& facts);

struct Extent {
  Hash128 name;
  Hash128 run;
  std::uint64_t bytes = 0;
  double expires_s = 0;
  double pinned_until_s = 0;  // by leases of other processes
  double accessed_s = 0;
  float frequency = 0;  // of accesses, at accessed_s
  float recompute_s = 0;
  float quality = 1;
  float keep = 1;
  float importance = 0;  // PlacedPrefix::importance; 0: not known, as long as its manifest was not at hand
  std::uint16_t realm = 0;
  std::uint16_t method = 0, rankings = 0;  // numbers
  std::uint16_t pins = 0;                  // of this store's callers
  std::uint16_t uses = 0;                  // reads, writes and moves in flight: must not be forgotten or removed
  std::uint16_t blocks = 0, chunk_blocks = 0;
  std::uint16_t damaged = 0;  // bit by chunk: not found any more
  std::uint8_t chunks = 0;    // 0: this entry is free
  std::uint8_t tiers = 0;     // bit by tier: whole there, and findable
  bool exact = true;
  std::uint8_t version = 0;                // of what lies at rest: another since a copy left, or was cut
  std::uint32_t first_block = 0;           // of the chain
  std::uint32_t group = kNoGroup;          // of the variants of these blocks: the placement's number
  std::unique_ptr<std::uint64_t[]> names;  // tags of chunks, then prints of blocks
  std::unique_ptr<std::string> label;      // null: none

  const std::uint32_t* prints() const { return reinterpret_cast<const std::uint32_t*>(names.get() + chunks); }
  std::uint32_t blocks_of(std::uint32_t chunk) const {
    return chunk + 1u < chunks ? chunk_blocks : blocks - (chunks - 1u) * chunk_blocks;
  }
  bool on(std::uint32_t tier) const { return (tiers >> tier & 1) != 0; }
  std::uint32_t fastest_tier(std::uint8_t excluded = 0) const;    // requires one
  double frequency_at(double wall_s, double half_life_s) const {  // decayed
    return frequency * std::exp2(-std::max(0.0, wall_s - accessed_s) / half_life_s);
  }
  bool pinned(double wall_s) const { return pins > 0 || pinned_until_s > wall_s; }
};

// Consecutive chunks of one extent that hold consecutive blocks of a chain.
struct ChainSpan {
  ExtentId extent = 0;
  std::uint32_t first_chunk = 0;
  std::uint32_t first_block = 0;  // of the chain
  std::uint32_t blocks = 0;       // may end inside a chunk
};

// Which extents a look-up may use, and which of several it takes.
struct SpanFilter {
  bool exact = true;
  float quality_min = 0;
  double wall_s = 0;                              // expired ones are not there, but for pinned ones
  std::uint32_t exact_after = ~std::uint32_t{0};  // chunks that reach beyond this block of the chain must be exact
  std::uint8_t tiers_excluded = 0;                // bit by tier
  // This variant is taken wherever it is, at that keep or a larger one.
  std::optional<std::uint16_t> method = {};
  float keep = 1;
  // The one worth most is taken of those that hold equally many blocks. Empty: exact ones first, then the fastest.
  std::function<double(const Extent&)> worth = {};
  bool only_named = false;  // no other variant will do, nor exact ones

  bool names(const Extent& extent) const { return method && extent.method == *method && extent.keep >= keep; }
};

// Not thread-safe.
class ExtentIndex {
 public:
  // The number of a realm, or of a method or list of rankings, new or known. At most 65,535 of each are told apart;
  // nothing beyond.
  std::optional<std::uint16_t> realm(const Realm& realm);
  std::optional<std::uint16_t> text(const std::string& text);
  const std::vector<Realm>& realms() const { return realms_; }
  const std::vector<std::string>& texts() const { return texts_; }

  // The extent of that name, new or known; nothing where its facts contradict themselves or there is no number left.
  std::optional<ExtentId> add(const ExtentFacts& facts, std::uint16_t realm);
  std::optional<ExtentId> find(const Hash128& name) const;
  Extent& at(ExtentId id) { return extents_[id]; }
  void cap_accesses(double wall_s) {  // none is later
    for (Extent& extent : extents_) extent.accessed_s = std::min(extent.accessed_s, wall_s);
  }
  const Extent& at(ExtentId id) const { return extents_[id]; }
  ExtentFacts facts(ExtentId id) const;
  // Requires that nothing uses it.
  void remove(ExtentId id);
  // Its chunk is not found any more; the others are.
  void hide_chunk(ExtentId id, std::uint32_t chunk);
  // All of its chunks are found again.
  void show_chunks(ExtentId id);

  // Whether a ranking of that name is kept beside it; and forgets that it is, if so.
  bool has_ranking(const Extent& extent, const std::string& name) const;
  bool lose_ranking(ExtentId id, const std::string& name);

  // The leading blocks of `keys`, a chain from its first, that are there, as few chunks as a walk along the longest
  // ones finds.
  std::vector<ChainSpan> match(std::span<const BlockKey> keys, const Hash128& realm, const SpanFilter& filter) const;
  // Extents whose blocks are all among the keys, one after another, in whatever form; also those that have expired, and
  // those of which chunks are hidden, but not all. Each once, by the first of its chunks that is not hidden.
  std::vector<ExtentId> within(std::span<const BlockKey> keys, const Hash128& realm) const;

  // Calls visit(id, extent) for every extent.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (ExtentId id = 0; id < extents_.size(); ++id) {
      if (extents_[id].chunks != 0) visit(id, extents_[id]);
    }
  }
  std::size_t extents() const { return by_name_.size(); }
  std::size_t chunks() const { return by_tag_.size(); }
  std::size_t bytes() const;  // of memory
  Status check_integrity() const;

 private:
  struct Match {
    ExtentId extent = 0;
    std::uint32_t chunk = 0, blocks = 0;
  };
  std::optional<Match> longest(std::span<const BlockKey> keys, std::uint32_t first, const Hash128& realm,
                               const SpanFilter& filter) const;
  bool usable(const Extent& extent, std::uint32_t end_block, const SpanFilter& filter) const;
  void insert_chunk(ExtentId id, std::uint32_t chunk);
  std::uint64_t tag_of(std::uint32_t ref) const { return extents_[ref / kChunksMax].names[ref % kChunksMax]; }

  std::vector<Realm> realms_;
  std::unordered_map<Hash128, std::uint16_t> realm_numbers_;
  std::vector<std::string> texts_;
  std::deque<Extent> extents_;
  std::vector<ExtentId> free_;
  IdTable by_name_;
  IdTable by_tag_;  // of extent · kChunksMax + chunk
  std::size_t names_bytes_ = 0;
};

}  // namespace shale
