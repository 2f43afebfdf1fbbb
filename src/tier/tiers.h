// How to make a tier: one function each. Their files: memory.cc, disk.cc, directory.cc, throttle.cc.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tier/tier.h"

namespace shale {

// Encoded objects in host memory; gone with the process. A read hands out the stored bytes themselves, without a copy.
std::unique_ptr<Tier> make_memory_tier(std::uint64_t capacity_bytes, const Clock& clock);

struct DiskTierOptions {
  std::filesystem::path folder;  // created, mode 0700
  std::uint64_t capacity_bytes = kUnlimited;
  bool direct_io = true;  // falls back to buffered I/O where the file system refuses it
  bool io_uring = true;   // falls back to threads that block in pread where the kernel refuses it
  bool sync = false;      // wait for the device before a write counts; without it, power loss may cost recent entries
  std::uint64_t spare_buffer_bytes = std::uint64_t{128} << 20;  // kept for reuse, so that reads fault no pages
  // Any number of tiers opened so may write to the folder at once, and none opened otherwise. What lies there is not
  // counted when it is opened: whoever keeps an index of it says so (Tier::count_others).
  bool several_writers = false;
};
// Bounded, survives restart and kill. One writer a folder, but where all say `several_writers`: a second process, or a
// second tier in this one, opens it read-only. kInvalidArgument where the folder belongs to somebody else; kIo. See
// docs/formats/disk.md.
Result<std::unique_ptr<Tier>> make_disk_tier(const DiskTierOptions& options, const Clock& clock);

// Any mounted path as the remote tier, in the same format; many processes share it without locks, for blobs are
// immutable and named by content. Buffered I/O; a write counts once the file system has it (fsync). What other
// processes store counts towards the capacity as of opening, and again before a write is refused.
Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock);

// Emulates other hardware: each operation takes at least latency + bytes / bandwidth. Latencies of operations under way
// together overlap; transfers of one direction share its bandwidth, in the order in which they started.
struct Throttle {
  std::string name;  // shown in every report: "hdd", "nfs-1g"
  double latency_s = 0;
  double read_bytes_per_s = 0;  // 0: as fast as the tier underneath
  double write_bytes_per_s = 0;
};
std::unique_ptr<Tier> make_throttled_tier(std::unique_ptr<Tier> tier, const Throttle& throttle, const Clock& clock);
// Named presets; kInvalidArgument lists them.
Result<Throttle> throttle_preset(std::string_view name);

}  // namespace shale
