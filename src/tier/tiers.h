// How to make a tier: one function each. Their files: memory.cc, disk.cc, directory.cc, throttle.cc.
#pragma once

#include <filesystem>
#include <optional>

#include "tier/tier.h"

namespace shale {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// Encoded objects in host memory; gone with the process.
std::unique_ptr<Tier> make_memory_tier(std::uint64_t capacity_bytes, const Clock& clock);

struct DiskTierOptions {
  std::filesystem::path folder;  // created, mode 0700
  std::uint64_t capacity_bytes = kUnlimited;
  bool direct_io = true;  // falls back to buffered I/O where the file system refuses it
};
// Bounded, survives restart and kill. One writer a folder: a second process opens it read-only. See docs/formats/disk.md.
Result<std::unique_ptr<Tier>> make_disk_tier(const DiskTierOptions& options, const Clock& clock);

// Any mounted path as the remote tier; many processes share it, for objects are immutable and named by content.
Result<std::unique_ptr<Tier>> make_directory_tier(const std::filesystem::path& folder, std::uint64_t capacity_bytes,
                                                  const Clock& clock);

// Emulates other hardware: each operation takes at least latency + bytes / bandwidth, transfers share the bandwidth.
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
