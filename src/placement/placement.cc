#include "placement/placement.h"

#include <algorithm>

namespace shale {

double utility(double alpha, double frequency, const Candidate& candidate) {
  return frequency * (alpha * candidate.quality - candidate.ttft_s);
}

std::vector<std::uint32_t> placement_after(const Problem& problem, const Plan& plan) {
  std::vector<std::uint32_t> placement;
  placement.reserve(problem.entries.size());
  for (const PlacedEntry& entry : problem.entries) placement.push_back(entry.current);
  for (const Move& move : plan.moves) placement[move.entry] = move.to;
  return placement;
}

std::optional<std::uint32_t> dropped_candidate(const PlacedEntry& entry) {
  const auto dropped = std::ranges::find(entry.candidates, kDropped, &Candidate::tier);
  if (dropped == entry.candidates.end()) return std::nullopt;
  return static_cast<std::uint32_t>(dropped - entry.candidates.begin());
}

}  // namespace shale
