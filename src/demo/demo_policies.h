// What one planner made of the demo's requests, live.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "demo/demo_run.h"

namespace shale {

struct DemoPolicy {
  std::string planner;                     // as written
  std::vector<double> ttft_s;              // per request
  double agreement = 0;                    // mean over requests
  std::array<std::uint32_t, 3> hits = {};  // by the slowest tier that a request read: memory, disk, remote
  std::uint32_t computed = 0;
  std::array<std::uint64_t, 3> bytes_held = {};  // per tier after the last request, uncompressed base copies left out
  std::uint64_t bytes_read = 0;                  // by all requests

  double ttft_mean_s() const;
};

DemoPolicy policy_of(std::string planner, DemoStack& stack, std::span<const AnsweredRequest> requests);

}  // namespace shale
