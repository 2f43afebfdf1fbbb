// The same workload under other policies, replayed from what the demo measured.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/demo_run.h"

namespace shale {

struct DemoPolicy {
  std::string name;
  bool replayed = true;                    // false: as it ran
  std::vector<double> ttft_s;              // per request, on the emulated tiers
  std::vector<double> own_ttft_s;          // per request, on this machine's own tiers; always replayed
  double agreement = 0;                    // mean over requests
  std::array<std::uint32_t, 3> hits = {};  // memory, disk, remote
  std::uint32_t computed = 0;
  std::array<std::uint64_t, 3> bytes_held = {};  // per tier after the last request, uncompressed base copies left out
  std::uint64_t bytes_read = 0;                  // by all requests
};

// prefill, lru, fixed (the one configuration that in hindsight serves this workload best), shale replayed, and shale as
// it ran.
Result<std::vector<DemoPolicy>> compare_policies(DemoStack& stack, std::span<const MetDocument> documents,
                                                 std::span<const AnsweredRequest> requests);

}  // namespace shale
