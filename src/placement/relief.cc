#include "placement/relief.h"

#include <algorithm>
#include <tuple>

namespace shale {

bool Relief::later(const Offer& a, const Offer& b) { return std::tie(a.rank, a.entry) > std::tie(b.rank, b.entry); }

std::optional<Relief::Offer> Relief::make_offer(std::size_t e) {
  const PlacedEntry& entry = board_.entry(e);
  const Candidate& current = board_.at(e);
  if (entry.pinned || current.tier == kDropped) return std::nullopt;

  points_.clear();
  std::optional<Point> below;
  for (std::uint32_t c = 0; c < entry.candidates.size(); ++c) {
    const Candidate& candidate = entry.candidates[c];
    const double value = board_.utility_of(e, candidate);
    if (candidate.tier == current.tier) {
      points_.push_back({candidate.bytes, value, c});
    } else if (candidate.tier > current.tier && could_fit(board_.problem(), candidate)) {
      const bool smaller = below && candidate.bytes < entry.candidates[below->candidate].bytes;
      if (!below || value > below->utility || (value == below->utility && smaller)) below = Point{0, value, c};
    }
  }
  if (below) points_.push_back(*below);

  const Point from{current.bytes, board_.utility_of(e, current), 0};
  const Point* to = next_vertex(points_, from);
  if (!to) return std::nullopt;
  const double drop = from.utility - to->utility;
  return Offer{divide_ ? drop_per_byte(from, *to) : drop, drop, e, to->candidate, board_.version(e)};
}

void Relief::offer(std::size_t e) {
  const std::uint32_t tier = board_.at(e).tier;
  if (tier == kDropped || !tiers_[tier].made) return;
  if (const auto made = make_offer(e)) {
    tiers_[tier].heap.push_back(*made);
    std::ranges::push_heap(tiers_[tier].heap, later);
  }
}

void Relief::move(std::size_t e, std::uint32_t to) {
  board_.move(e, to);
  offer(e);
}

void Relief::undo(std::size_t moves) {
  for (const std::size_t e : board_.undo(moves)) offer(e);
}

std::optional<Relief::Offer> Relief::take_least(std::uint32_t tier, std::size_t still) {
  TierOffers& offers = tiers_[tier];
  if (!offers.made) {
    offers.made = true;
    for (std::size_t e = 0; e < board_.problem().entries.size(); ++e) {
      if (board_.at(e).tier != tier) continue;
      if (const auto made = make_offer(e)) offers.heap.push_back(*made);
    }
    std::ranges::make_heap(offers.heap, later);
  }
  while (!offers.heap.empty()) {
    std::ranges::pop_heap(offers.heap, later);
    const Offer least = offers.heap.back();
    offers.heap.pop_back();
    if (least.version == board_.version(least.entry) && least.entry != still) return least;
  }
  return std::nullopt;
}

bool Relief::relieve_tier(std::uint32_t tier, double drop_limit, std::size_t still, double& dropped) {
  while (const std::uint64_t over = board_.over_bytes(tier)) {
    const auto least = take_least(tier, still);
    if (!least) return false;
    const double at_least = divide_ ? least->rank * static_cast<double>(over) : least->drop;
    if (dropped + std::max(least->drop, at_least) >= drop_limit) {
      offer(least->entry);
      return false;
    }
    dropped += least->drop;
    move(least->entry, least->to);
  }
  return true;
}

bool Relief::run(double drop_limit, std::size_t still) {
  double dropped = 0;
  bool relieved = true;
  for (std::uint32_t tier = 0; tier < tiers_.size() && (relieved || drop_limit == kAnyDrop); ++tier) {
    relieved = relieve_tier(tier, drop_limit, still, dropped) && relieved;
  }
  if (still != kNobody) offer(still);  // its own was passed over
  return relieved && dropped < drop_limit;
}

}  // namespace shale
