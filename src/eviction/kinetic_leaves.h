// Leaves whose value falls with time: weight / (1 + now − since), the smallest first, exactly.
//
// A kinetic tournament: a binary tree of matches between leaves, each with the time at which its loser will have become
// the lesser. Two leaves change order at most once, so a match is played again only when its time has come or a leaf
// below it has changed. Fractions are compared by cross products of integers; of equals the newest is first.
// O(log leaves) a change, O(log² leaves) amortised as time passes. 20 bytes a node, and 20 a leaf.
#pragma once

#include <cstdint>
#include <vector>

#include "paging/eviction_policy.h"
#include "paging/reserve_tightly.h"

namespace shale {

class KineticLeaves {
 public:
  void grow(std::size_t nodes) {
    resize_tightly(nodes_, nodes);
    resize_tightly(serials_, nodes);
  }
  // Never goes back.
  void advance(std::uint64_t now) { now_ = now; }

  // Weights above 2^31 and ages above 2^31 count as so much. `serial` tells the newest of equals.
  void put(NodeId node, std::uint64_t weight, std::uint64_t since, std::uint64_t serial);
  std::uint64_t serial(NodeId node) const { return serials_[node]; }
  void remove(NodeId) {}

  // As LeafQueues': only nodes that entered are candidates.
  void enter(NodeId node);
  void leave(NodeId node);
  void replace(NodeId leaf, NodeId parent);

  NodeId first();  // or kNoNode

 private:
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 31;

  struct Node {
    std::uint32_t since = 0;  // its low bits
    std::uint32_t weight = 1;
    std::uint32_t slot = kNoSlot;
  };

  std::uint64_t age(const Node& node) const;
  // When the match, or one below it, has to be played again.
  std::uint64_t ends(std::size_t match) const { return match < ends_.size() ? ends_[match] : kNever; }
  void play(std::size_t match);
  void play_ended(std::size_t match);
  void changed(std::uint32_t slot);
  void add_slots();

  std::vector<Node> nodes_;  // these by NodeId
  std::vector<std::uint64_t> serials_;
  // winners_[1] won the final; match i is between the winners of 2i and 2i + 1; the second half are the slots.
  std::vector<NodeId> winners_;
  std::vector<std::uint64_t> ends_;  // by match, as many as there are slots
  std::vector<std::uint32_t> unused_slots_;
  std::uint64_t now_ = 0;
};

}  // namespace shale
