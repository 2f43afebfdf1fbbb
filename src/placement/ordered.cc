#include "placement/ordered.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "placement/board.h"

namespace shale {
namespace {

std::vector<std::uint64_t> capacities(const Problem& problem) {
  std::vector<std::uint64_t> room;
  for (const TierRoom& tier : problem.tiers) room.push_back(tier.capacity_bytes);
  return room;
}

}  // namespace

bool older(const PlacedEntry& a, const PlacedEntry& b) {
  return std::tuple(a.last_access_s, a.accesses, b.id) < std::tuple(b.last_access_s, b.accesses, a.id);
}

bool rarer(const PlacedEntry& a, const PlacedEntry& b) {
  return std::tuple(a.accesses, a.last_access_s, b.id) < std::tuple(b.accesses, b.last_access_s, a.id);
}

std::optional<std::uint32_t> OrderedPlanner::place(const Problem& problem, const PlacedEntry& entry, std::uint32_t top,
                                                   const std::vector<std::uint64_t>& room) const {
  std::optional<std::uint32_t> best = dropped_candidate(entry);
  for (std::uint32_t c = 0; c < entry.candidates.size(); ++c) {
    const Candidate& candidate = entry.candidates[c];
    if (candidate.method != method_ || std::abs(candidate.keep - keep_) > 1e-9) continue;
    if (candidate.tier < top || candidate.tier >= problem.tiers.size()) continue;
    if (candidate.bytes > room[candidate.tier]) continue;
    if (!best || candidate.tier < entry.candidates[*best].tier) best = c;
  }
  return best;
}

std::vector<std::size_t> OrderedPlanner::in_order(const Problem& problem) const {
  std::vector<std::size_t> order(problem.entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, goes_first_, [&](std::size_t e) -> const PlacedEntry& { return problem.entries[e]; });
  return order;
}

std::uint32_t OrderedPlanner::insert(const Problem& problem, const PlacedEntry& entry) const {
  return place(problem, entry, 0, capacities(problem)).value_or(entry.current);
}

Plan OrderedPlanner::relieve(const Problem& problem) const {
  Board board(problem);
  const std::vector<std::size_t> order = in_order(problem);
  const std::vector<std::uint64_t> room = capacities(problem);
  for (std::uint32_t tier = 0; tier < problem.tiers.size(); ++tier) {
    for (std::size_t i = 0; i < order.size() && board.over_bytes(tier) > 0; ++i) {
      const std::size_t e = order[i];
      if (board.entry(e).pinned || board.at(e).tier != tier) continue;
      if (const auto to = place(problem, board.entry(e), tier + 1, room)) board.move(e, *to);
    }
  }
  return board.plan();
}

Plan OrderedPlanner::promote(const Problem& problem) const {
  Board board(problem);
  if (!board.fits()) return board.plan();
  std::vector<std::uint64_t> room = capacities(problem);
  const auto stays = [&](std::size_t e) {
    const bool placeable = board.at(e).method == method_ && std::abs(board.at(e).keep - keep_) <= 1e-9;
    return board.entry(e).pinned || board.at(e).tier == kDropped || !placeable;
  };
  const auto take_room = [&](std::size_t e) {
    if (board.at(e).tier != kDropped) room[board.at(e).tier] -= board.at(e).bytes;
  };
  std::vector<std::size_t> order = in_order(problem);
  for (const std::size_t e : order) {
    if (stays(e)) take_room(e);
  }
  for (auto e = order.rbegin(); e != order.rend(); ++e) {
    if (stays(*e)) continue;
    const auto to = place(problem, board.entry(*e), 0, room);
    if (!to) return Board(problem).plan();  // one that may not be dropped would lose its place
    if (*to != board.entry(*e).current) board.move(*e, *to);
    take_room(*e);
  }
  return board.plan();
}

}  // namespace shale
