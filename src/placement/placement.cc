#include "placement/placement.h"

#include <algorithm>
#include <cmath>

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

bool as_it_was(const PlacedPrefix& now, const PlacedPrefix& before) {
  constexpr double kNews = 0.1;
  return now.current == before.current && now.pinned == before.pinned &&
         now.full_copy_bytes == before.full_copy_bytes && now.importance == before.importance &&
         std::ranges::equal(now.candidates, before.candidates, [](const Candidate& a, const Candidate& b) {
           return a.method == b.method && a.keep == b.keep && a.tier == b.tier && a.bytes == b.bytes &&
                  a.quality == b.quality && std::abs(a.ttft_s - b.ttft_s) <= kNews * b.ttft_s;
         });
}

}  // namespace shale
