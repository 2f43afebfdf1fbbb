#include "demo/demo_policies.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace shale {

double DemoPolicy::ttft_mean_s() const {
  return std::accumulate(ttft_s.begin(), ttft_s.end(), 0.0) / static_cast<double>(ttft_s.size());
}

DemoPolicy policy_of(std::string planner, DemoStack& stack, std::span<const AnsweredRequest> requests) {
  DemoPolicy policy{.planner = std::move(planner), .ttft_s = {}};
  for (const AnsweredRequest& request : requests) {
    policy.ttft_s.push_back(request.ttft_s);
    policy.agreement += request.agreement / static_cast<double>(requests.size());
    policy.bytes_read += request.bytes;
    const auto tier = std::ranges::find(stack.tiers(), request.from, &DemoTier::name) - stack.tiers().begin();
    ++(request.from == kComputed ? policy.computed : policy.hits[static_cast<std::size_t>(tier)]);
  }
  const Problem problem = stack.cache().store().problem();
  for (const PlacedPrefix& prefix : problem.prefixes) {
    const Candidate& placed = prefix.candidates[prefix.current];
    if (placed.tier != kDropped) policy.bytes_held[placed.tier] += placed.bytes;
  }
  return policy;
}

}  // namespace shale
