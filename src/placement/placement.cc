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

std::vector<std::size_t> full_copies(const Problem& problem, std::span<const std::uint32_t> placement) {
  if (problem.tiers.empty()) return {};
  const std::uint32_t lowest = static_cast<std::uint32_t>(problem.tiers.size() - 1);
  std::uint64_t used = 0;
  std::vector<std::size_t> wanted;
  for (std::size_t e = 0; e < problem.entries.size(); ++e) {
    const PlacedEntry& entry = problem.entries[e];
    const Candidate& candidate = entry.candidates[placement[e]];
    if (candidate.tier == lowest) used += candidate.bytes;
    if (candidate.tier < lowest && entry.full_copy_bytes > 0) wanted.push_back(e);
  }
  std::ranges::stable_sort(wanted, std::greater(), [&](std::size_t e) {
    return problem.entries[e].frequency / static_cast<double>(problem.entries[e].full_copy_bytes);
  });
  const std::uint64_t capacity = problem.tiers[lowest].capacity_bytes;
  std::uint64_t room = capacity > used ? capacity - used : 0;
  std::vector<std::size_t> kept;
  for (const std::size_t e : wanted) {
    if (problem.entries[e].full_copy_bytes > room) continue;
    room -= problem.entries[e].full_copy_bytes;
    kept.push_back(e);
  }
  std::ranges::sort(kept);
  return kept;
}

std::optional<std::uint32_t> dropped_candidate(const PlacedEntry& entry) {
  const auto dropped = std::ranges::find(entry.candidates, kDropped, &Candidate::tier);
  if (dropped == entry.candidates.end()) return std::nullopt;
  return static_cast<std::uint32_t>(dropped - entry.candidates.begin());
}

}  // namespace shale
