// What a store of very many chunks costs: memory, look-ups, opening.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/clock.h"
#include "core/error.h"

namespace shale::bench {

struct StoreIndexResult {
  std::uint64_t chunks = 0, extents = 0;
  double save_s = 0;         // until all were saved
  double bytes_a_chunk = 0;  // of all that the store has allocated, with a tier of memory above
  double index_bytes_a_chunk = 0;
  double open_after_kill_s = 0;   // from the logs of a process that was killed, until the first look-up was right
  double open_after_close_s = 0;  // from a snapshot
  double lookup_s = 0, lookup_p99_s = 0;  // of 512 keys that are all there, median and 99th percentile
  std::uint64_t found_after_kill = 0;     // chunks
};

struct StoreIndexOptions {
  std::filesystem::path folder;  // empty; takes about 16 KiB for each 16 chunks
  std::uint64_t chunks = 1'000'000;
  std::uint32_t lookups = 2000;
};

// Fills a folder from a process of its own, which is killed once everything lies where it belongs, then opens it twice.
// Chunks are 16 blocks of one opaque byte, in chains of 512 blocks with random keys, two extents each. Forks: to be
// called before there are threads. Leaves the folder's contents to be removed by the caller.
Result<StoreIndexResult> measure_store_index(const StoreIndexOptions& options, const Clock& clock);

}  // namespace shale::bench
