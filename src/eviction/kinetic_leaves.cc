#include "eviction/kinetic_leaves.h"

#include <algorithm>
#include <utility>

namespace shale {

void KineticLeaves::put(NodeId node, std::uint64_t weight, std::uint64_t since, std::uint64_t serial) {
  const std::uint32_t slot = nodes_[node].slot;
  nodes_[node] = {since, serial, static_cast<std::uint32_t>(std::min(weight, kMost)), slot};
  if (slot != kNoSlot) changed(slot);
}

void KineticLeaves::enter(NodeId node) {
  if (unused_slots_.empty()) double_slots();
  nodes_[node].slot = unused_slots_.back();
  unused_slots_.pop_back();
  matches_[matches_.size() / 2 + nodes_[node].slot].winner = node;
  changed(nodes_[node].slot);
}

void KineticLeaves::leave(NodeId node) {
  const std::uint32_t slot = std::exchange(nodes_[node].slot, kNoSlot);
  matches_[matches_.size() / 2 + slot].winner = kNoNode;
  unused_slots_.push_back(slot);
  changed(slot);
}

void KineticLeaves::replace(NodeId leaf, NodeId parent) {
  const std::uint32_t slot = std::exchange(nodes_[leaf].slot, kNoSlot);
  nodes_[parent].slot = slot;
  matches_[matches_.size() / 2 + slot].winner = parent;
  changed(slot);
}

NodeId KineticLeaves::first() {
  play_ended(1);
  return matches_[1].winner;
}

std::uint64_t KineticLeaves::age(const Node& node) const { return std::min(now_ - node.since, kMost - 1) + 1; }

void KineticLeaves::play(std::size_t match) {
  const Match &left = matches_[2 * match], &right = matches_[2 * match + 1];
  NodeId winner = left.winner, loser = right.winner;
  std::uint64_t ends = std::min(left.ends, right.ends);
  if (winner == kNoNode) std::swap(winner, loser);
  if (loser != kNoNode) {
    // The lead: how far the loser's value is above the winner's, times both ages.
    const auto lead_of = [&](const Node& a, const Node& b) {
      return static_cast<std::int64_t>(age(a) * b.weight) - static_cast<std::int64_t>(age(b) * a.weight);
    };
    std::int64_t lead = lead_of(nodes_[winner], nodes_[loser]);
    if (lead < 0 || (lead == 0 && nodes_[loser].serial > nodes_[winner].serial)) {
      std::swap(winner, loser);
      lead = -lead;
    }
    const Node &first = nodes_[winner], &second = nodes_[loser];
    if (first.weight > second.weight) {  // else the lead never shrinks
      const std::uint64_t shrinks = first.weight - second.weight;
      const std::uint64_t whole = static_cast<std::uint64_t>(lead) / shrinks;
      const bool tie_suffices = second.serial > first.serial && static_cast<std::uint64_t>(lead) % shrinks == 0;
      ends = std::min(ends, now_ + whole + (tie_suffices ? 0 : 1));
    }
  }
  matches_[match] = {ends, winner};
}

void KineticLeaves::play_ended(std::size_t match) {
  if (matches_[match].ends > now_) return;
  play_ended(2 * match);
  play_ended(2 * match + 1);
  play(match);
}

void KineticLeaves::changed(std::uint32_t slot) {
  for (std::size_t match = (matches_.size() / 2 + slot) / 2; match > 0; match /= 2) play(match);
}

void KineticLeaves::double_slots() {
  const std::size_t slots = matches_.size() / 2;
  std::vector<Match> matches(4 * slots);
  std::copy(matches_.begin() + static_cast<std::ptrdiff_t>(slots), matches_.end(),
            matches.begin() + static_cast<std::ptrdiff_t>(2 * slots));
  matches_ = std::move(matches);
  for (std::size_t slot = slots; slot < 2 * slots; ++slot) unused_slots_.push_back(static_cast<std::uint32_t>(slot));
  for (std::size_t match = 2 * slots; match-- > 1;) play(match);
}

}  // namespace shale
