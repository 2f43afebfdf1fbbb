#include "placement/board.h"

#include <algorithm>
#include <tuple>

namespace shale {

Board::Board(const Problem& problem)
    : problem_(problem), at_(problem.entries.size()), version_(problem.entries.size()), used_(problem.tiers.size()) {
  for (std::size_t e = 0; e < at_.size(); ++e) {
    at_[e] = entry(e).current;
    if (at(e).tier != kDropped) used_[at(e).tier] += at(e).bytes;
  }
}

std::uint64_t Board::over_bytes(std::uint32_t tier) const {
  const std::uint64_t capacity = problem_.tiers[tier].capacity_bytes;
  return used_[tier] > capacity ? used_[tier] - capacity : 0;
}

bool Board::fits() const {
  for (std::uint32_t tier = 0; tier < used_.size(); ++tier) {
    if (over_bytes(tier) > 0) return false;
  }
  return true;
}

void Board::place(std::size_t e, std::uint32_t to) {
  if (at(e).tier != kDropped) used_[at(e).tier] -= at(e).bytes;
  at_[e] = to;
  if (at(e).tier != kDropped) used_[at(e).tier] += at(e).bytes;
  ++version_[e];
}

void Board::move(std::size_t e, std::uint32_t to) {
  log_.push_back({e, at_[e], to});
  place(e, to);
}

std::vector<std::size_t> Board::undo(std::size_t moves) {
  std::vector<std::size_t> entries;
  while (log_.size() > moves) {
    const Move last = log_.back();
    log_.pop_back();
    place(last.entry, last.from);
    entries.push_back(last.entry);
  }
  return entries;
}

Plan Board::plan() const {
  Plan plan;
  plan.feasible = fits();
  for (std::size_t e = 0; e < at_.size(); ++e) {
    plan.utility += utility_of(e, at(e));
    if (at_[e] != entry(e).current) plan.moves.push_back({e, entry(e).current, at_[e]});
  }
  std::ranges::sort(plan.moves, {}, [&](const Move& move) {
    const Candidate& from = entry(move.entry).candidates[move.from];
    const Candidate& to = entry(move.entry).candidates[move.to];
    const bool shrinks_in_place = from.tier == to.tier && to.bytes <= from.bytes;
    return std::tuple(~to.tier, !shrinks_in_place, move.entry);
  });
  return plan;
}

std::optional<std::uint32_t> dropped_candidate(const PlacedEntry& entry) {
  const auto dropped = std::ranges::find(entry.candidates, kDropped, &Candidate::tier);
  if (dropped == entry.candidates.end()) return std::nullopt;
  return static_cast<std::uint32_t>(dropped - entry.candidates.begin());
}

}  // namespace shale
