// How fast a store loads and saves through views, beside what the machine does with the same bytes: a copy with the
// same checksum for what lies in memory, fio for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"

namespace shale::bench {

struct StoreIoRow {
  std::string operation;         // "save", in memory where that is full of others; "load"
  std::string tier;              // "memory", "disk"
  std::string method;            // "full", "int8", "kivi4"
  unsigned threads = 1;          // of the store, and of those who wait, each for one of its contexts at a time
  double bytes_per_s = 0;        // logical: of the keys and values in views, whatever they take at rest
  std::uint64_t unit_bytes = 0;  // disk: a read or write of the tier, on average
  // memory: memcpy and XXH3-128 of the same logical bytes, on as many threads. disk: fio with requests of that unit,
  // scaled from bytes at rest to logical ones; 0 without fio.
  double peer_bytes_per_s = 0;
};

struct StoreIoOptions {
  std::filesystem::path folder;  // of the disk; where fio runs, too
  std::vector<std::string> methods = {"full", "int8", "kivi4"};
  std::vector<unsigned> threads = {1, 2, 4};
  std::uint32_t contexts = 8;           // saved, then loaded
  std::uint32_t context_tokens = 2048;  // 16 KiB of KV each: 16 layers, 4 KV heads of 64 channels, fp16
  int rounds = 3;                       // every number is the median of as many; peers take turns with the store
  bool fio = false;
};

// kCorrupt where exact KV comes back different. Removes what it wrote.
Result<std::vector<StoreIoRow>> measure_store_io(const StoreIoOptions& options, const Clock& clock);

}  // namespace shale::bench
