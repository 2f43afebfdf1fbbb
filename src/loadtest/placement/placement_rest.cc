#include "loadtest/placement/placement_rest.h"

#include <fmt/format.h>

namespace shale {

std::string unrest_of(const Metrics& metrics) {
  for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting", "shale_cache_saving_chunks",
                           "shale_cache_saves_left", "shale_cache_moves_left"}) {
    if (const double left = value_of(metrics, name); left != 0) return fmt::format("{} is {}", name, left);
  }
  for (const auto& [tier, bytes] : by_label(metrics, "shale_tier_write_queue_bytes", "tier")) {
    if (bytes != 0) return fmt::format("{} bytes are written to {}", bytes, tier);
  }
  return {};
}

}  // namespace shale
