#include "eviction/kinetic_leaves.h"

#include <algorithm>
#include <utility>

namespace shale {

void KineticLeaves::put(NodeId node, std::uint64_t weight, std::uint64_t since, std::uint64_t serial) {
  const std::uint32_t slot = nodes_[node].slot;
  nodes_[node] = {static_cast<std::uint32_t>(since), static_cast<std::uint32_t>(std::min(weight, kMost)), slot};
  serials_[node] = serial;
  if (slot != kNoSlot) changed(slot);
}

void KineticLeaves::enter(NodeId node) {
  if (unused_slots_.empty()) add_slots();
  nodes_[node].slot = unused_slots_.back();
  unused_slots_.pop_back();
  winners_[ends_.size() + nodes_[node].slot] = node;
  changed(nodes_[node].slot);
}

void KineticLeaves::leave(NodeId node) {
  const std::uint32_t slot = std::exchange(nodes_[node].slot, kNoSlot);
  winners_[ends_.size() + slot] = kNoNode;
  reserve_tightly(unused_slots_, unused_slots_.size() + 1);
  unused_slots_.push_back(slot);
  changed(slot);
}

void KineticLeaves::replace(NodeId leaf, NodeId parent) {
  const std::uint32_t slot = std::exchange(nodes_[leaf].slot, kNoSlot);
  nodes_[parent].slot = slot;
  winners_[ends_.size() + slot] = parent;
  changed(slot);
}

NodeId KineticLeaves::first() {
  if (winners_.empty()) return kNoNode;
  play_ended(1);
  return winners_[1];
}

std::uint64_t KineticLeaves::age(const Node& node) const {
  return std::min<std::uint64_t>(static_cast<std::uint32_t>(now_) - node.since, kMost - 1) + 1;
}

void KineticLeaves::play(std::size_t match) {
  NodeId winner = winners_[2 * match], loser = winners_[2 * match + 1];
  std::uint64_t end = std::min(ends(2 * match), ends(2 * match + 1));
  if (winner == kNoNode) std::swap(winner, loser);
  if (loser != kNoNode) {
    // The lead: how far the loser's value is above the winner's, times both ages.
    const auto lead_of = [&](const Node& a, const Node& b) {
      return static_cast<std::int64_t>(age(a) * b.weight) - static_cast<std::int64_t>(age(b) * a.weight);
    };
    std::int64_t lead = lead_of(nodes_[winner], nodes_[loser]);
    if (lead < 0 || (lead == 0 && serials_[loser] > serials_[winner])) {
      std::swap(winner, loser);
      lead = -lead;
    }
    const Node &first = nodes_[winner], &second = nodes_[loser];
    if (first.weight > second.weight) {  // else the lead never shrinks
      const std::uint64_t shrinks = first.weight - second.weight;
      const std::uint64_t whole = static_cast<std::uint64_t>(lead) / shrinks;
      const bool tie_suffices = serials_[loser] > serials_[winner] && static_cast<std::uint64_t>(lead) % shrinks == 0;
      end = std::min(end, now_ + whole + (tie_suffices ? 0 : 1));
    }
  }
  ends_[match] = end;
  winners_[match] = winner;
}

void KineticLeaves::play_ended(std::size_t match) {
  if (ends(match) > now_) return;
  play_ended(2 * match);
  play_ended(2 * match + 1);
  play(match);
}

void KineticLeaves::changed(std::uint32_t slot) {
  for (std::size_t match = (ends_.size() + slot) / 2; match > 0; match /= 2) play(match);
}

void KineticLeaves::add_slots() {
  const std::size_t before = ends_.size(), slots = before + before / 16 + 16;
  std::vector<NodeId> winners(2 * slots, kNoNode);
  std::copy(winners_.begin() + static_cast<std::ptrdiff_t>(before), winners_.end(),
            winners.begin() + static_cast<std::ptrdiff_t>(slots));
  winners_ = std::move(winners);
  ends_ = std::vector(slots, kNever);
  for (std::size_t slot = before; slot < slots; ++slot) unused_slots_.push_back(static_cast<std::uint32_t>(slot));
  for (std::size_t match = slots; match-- > 1;) play(match);
}

}  // namespace shale
