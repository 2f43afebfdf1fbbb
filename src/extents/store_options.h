// What a store is opened with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "codec/views/kv_view.h"
#include "extents/store_placement.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

class CachegenTables;

struct StoreOptions {
  // Everything that must agree before KV may be used again, but the geometry: model and weights, numerics, RoPE, the
  // hash of keys and its seed. KV of another namespace or geometry is never returned, and left alone.
  std::string name_space;
  KvGeometry geometry;
  KvPacking packing = KvPacking::kTokensHeads;  // of exact extents: fastest where views lie likewise
  std::uint32_t chunk_tokens = 256;             // a multiple of the block; what partial hits read is rounded up to it
  // Bytes that may be read and not yet written to a view, or encoded and not yet on a tier; a quarter is kept for moves
  // and an eighth for loads. A load always has one read in flight, however full it is, and a save one extent until all
  // saves together have filled it.
  std::uint64_t staging_bytes = std::uint64_t{256} << 20;
  std::uint64_t manifest_cache_bytes = std::uint64_t{32} << 20;  // of manifests kept parsed
  double frequency_half_life_s = 600;                            // of accesses, by which extents are kept
  StorePlacement placement = {};
  // Threads of the store's own, for encoding, writing and moving. 0: the owner calls work(), and bounds it. Others,
  // which never compute, do what may block for each tier: asking, listing, removing, and all that the folders need.
  unsigned threads = 1;
  std::size_t events_max = 65536;  // kept until taken, in 16 MiB at most; older ones are dropped, and counted
  // Facts of the model that computes, which lossy methods read beside keys and values; what they refer to must outlive
  // the store. Null tables: methods that need them are refused.
  ScorerOptions scorers = {};
  ModelTraits model = {};
  const CachegenTables* tables = nullptr;
  // Seconds since 1970, for what outlives a process: times to live. Empty: the system's.
  std::function<double()> wall_clock = {};
};

}  // namespace shale
