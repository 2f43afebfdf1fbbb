// How fast a tier moves blobs, beside what fio gets out of the same folder in the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "tier/tier.h"

namespace shale::bench {

struct TierIoRow {
  std::string tier;  // "memory", "disk", "remote"; "disk (hdd)" where emulated; or what is measured beside one: "fio"
  std::uint64_t unit_bytes = 0;
  std::string operation;    // "write", "read" in the order of writing, "random read"
  double bytes_per_s = 0;   // many operations in flight
  double latency_s = 0;     // of one operation alone, the median
  std::string beside = {};  // which tier it is measured beside; empty of the tier itself
};

struct TierIoOptions {
  std::vector<std::uint64_t> units = {256 << 10, 1 << 20, 4 << 20};
  std::uint64_t total_bytes = 256 << 20;     // moved by each operation of each unit
  std::uint64_t in_flight_bytes = 32 << 20;  // asked for before the first is waited for
  int rounds = 3;                            // every number is the median of as many
  // The folder where fio measures what the device can do, in turns with the tier, so that whatever else the machine is
  // doing disturbs both: the same bytes, as many requests in flight of the size that the tier makes, direct I/O
  // (fio.h). Empty: no fio.
  std::filesystem::path fio_folder;
  // What something else makes of the same blobs while they lie in the tier, in every round between the tier's reads.
  // Rows of as many as there are.
  std::function<Result<std::vector<TierIoRow>>(const std::vector<BlobId>& blobs, std::uint64_t unit_bytes)> beside = {};
};

// Writes, reads and removes blobs of names of its own; whatever it reads is compared with what it wrote (a word of
// every 4 KiB). Bytes are the blobs', frames and padding not counted. Rows of the tier, then those beside it. kCorrupt
// when a blob comes back different; kUnsupported when fio is asked for and does not run.
Result<std::vector<TierIoRow>> measure_tier_io(Tier& tier, const Clock& clock, const TierIoOptions& options = {});

}  // namespace shale::bench
