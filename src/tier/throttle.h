// A throttle goes around any tier, and makes it as slow as hardware that this machine does not have.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/error.h"
#include "tier/tier.h"

namespace shale {

// Emulates other hardware: each operation takes at least latency + bytes / bandwidth. Latencies of operations in flight
// together overlap; transfers of one direction share its bandwidth, in the order in which they started.
struct Throttle {
  std::string name;  // shown in every report: "hdd", "nfs-1g"
  double latency_s = 0;
  double read_bytes_per_s = 0;  // 0: as fast as the tier underneath
  double write_bytes_per_s = 0;
};
std::unique_ptr<Tier> make_throttled_tier(std::unique_ptr<Tier> tier, const Throttle& throttle, const Clock& clock);
// A preset's name, or BANDWIDTH,LATENCY: "hdd", "200MB/s,8ms". kInvalidArgument lists the presets.
Result<Throttle> parse_throttle(std::string_view text);

}  // namespace shale
