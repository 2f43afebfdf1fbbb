#include "placement/placement.h"

#include <algorithm>

namespace shale {

double utility(double alpha, double frequency, const Candidate& candidate) {
  return frequency * (alpha * candidate.quality - candidate.ttft_s);
}

std::vector<std::uint32_t> placement_after(const Problem& problem, const Plan& plan) {
  std::vector<std::uint32_t> placement;
  placement.reserve(problem.prefixes.size());
  for (const PlacedPrefix& prefix : problem.prefixes) placement.push_back(prefix.current);
  for (const Move& move : plan.moves) placement[move.prefix] = move.to;
  return placement;
}

std::optional<std::uint32_t> dropped_candidate(const PlacedPrefix& prefix) {
  const auto dropped = std::ranges::find(prefix.candidates, kDropped, &Candidate::tier);
  if (dropped == prefix.candidates.end()) return std::nullopt;
  return static_cast<std::uint32_t>(dropped - prefix.candidates.begin());
}

}  // namespace shale
