// Queues of nodes of which only leaves may leave.
//
// Every node is in one queue and has a rank there, leaf or not: a node with children keeps its place and counts in the
// queue's size, but is overlooked until it is a leaf. So whatever a published algorithm does to the first object of its
// queue is done here to the first *leaf*, and where every path is one block long the two are the same.
//
// A queue is a binary heap of its leaves: a change costs O(log leaves), and O(1) where the rank is the largest so far
// or a parent takes the place of its last child at the same rank. 5 bytes a node beside the rank, and 4 a leaf.
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "paging/eviction_policy.h"
#include "paging/reserve_tightly.h"

namespace shale {

// `Rank` is ordered by <; the lowest is first in its queue. Queues are numbered from 0.
template <class RankType>
class LeafQueues {
 public:
  using Rank = RankType;

  explicit LeafQueues(std::uint8_t queues = 1) : queues_(queues) {}

  // Node numbers below `nodes` may be used from now on.
  void grow(std::size_t nodes) {
    resize_tightly(ranks_, nodes);
    resize_tightly(places_, nodes, kNoPlace);
    resize_tightly(queue_of_, nodes, kNoQueue);
  }

  // Puts the node into the queue, out of the one that it is in, or gives it another rank there.
  void put(NodeId node, std::uint8_t queue, Rank rank) {
    const bool candidate = places_[node] != kNoPlace;
    if (const std::uint8_t before = queue_of_[node]; before != queue) {
      if (candidate) leave(node);
      if (before != kNoQueue) --queues_[before].size;
      ++queues_[queue].size;
      queue_of_[node] = queue;
      ranks_[node] = rank;
      if (candidate) enter(node);
    } else {
      ranks_[node] = rank;
      if (candidate) settle(node, places_[node]);
    }
  }
  void remove(NodeId node) {
    assert(places_[node] == kNoPlace);
    --queues_[std::exchange(queue_of_[node], kNoQueue)].size;
  }

  // A node of a queue becomes a candidate: it is a leaf and may go.
  void enter(NodeId node) {
    std::vector<NodeId>& leaves = queues_[queue_of_[node]].leaves;
    reserve_tightly(leaves, leaves.size() + 1);
    leaves.push_back(node);
    settle(node, leaves.size() - 1);
  }
  void leave(NodeId node) {
    std::vector<NodeId>& leaves = queues_[queue_of_[node]].leaves;
    const std::size_t hole = std::exchange(places_[node], kNoPlace);
    const NodeId last = leaves.back();
    leaves.pop_back();
    if (hole < leaves.size()) settle(last, hole);
  }
  // `leave` for one, `enter` for the other.
  void replace(NodeId leaf, NodeId parent) {
    if (queue_of_[leaf] == queue_of_[parent]) {
      settle(parent, std::exchange(places_[leaf], kNoPlace));
    } else {
      leave(leaf);
      enter(parent);
    }
  }

  // The first leaf, or kNoNode.
  NodeId first(std::uint8_t queue = 0) const {
    return queues_[queue].leaves.empty() ? kNoNode : queues_[queue].leaves.front();
  }
  std::uint64_t size(std::uint8_t queue) const { return queues_[queue].size; }                // leaves and others
  std::span<const NodeId> leaves(std::uint8_t queue) const { return queues_[queue].leaves; }  // in no order
  bool contains(NodeId node) const { return queue_of_[node] != kNoQueue; }
  std::uint8_t queue(NodeId node) const { return queue_of_[node]; }
  Rank rank(NodeId node) const { return ranks_[node]; }

 private:
  static constexpr std::uint8_t kNoQueue = 255;
  static constexpr std::uint32_t kNoPlace = ~std::uint32_t{0};

  struct Queue {
    std::vector<NodeId> leaves;  // a heap
    std::uint64_t size = 0;
  };

  // Puts `node` into the hole, or where the heap's order wants it.
  void settle(NodeId node, std::size_t hole) {
    std::vector<NodeId>& leaves = queues_[queue_of_[node]].leaves;
    const Rank rank = ranks_[node];
    const auto fill = [&](NodeId with) {
      leaves[hole] = with;
      places_[with] = static_cast<std::uint32_t>(hole);
    };
    while (hole > 0 && rank < ranks_[leaves[(hole - 1) / 2]]) {
      fill(leaves[(hole - 1) / 2]);
      hole = (hole - 1) / 2;
    }
    for (std::size_t child = 2 * hole + 1; child < leaves.size(); child = 2 * hole + 1) {
      if (child + 1 < leaves.size() && ranks_[leaves[child + 1]] < ranks_[leaves[child]]) ++child;
      if (!(ranks_[leaves[child]] < rank)) break;
      fill(leaves[child]);
      hole = child;
    }
    fill(node);
  }

  std::vector<Rank> ranks_;            // these by NodeId
  std::vector<std::uint32_t> places_;  // among its queue's leaves
  std::vector<std::uint8_t> queue_of_;
  std::vector<Queue> queues_;
};

}  // namespace shale
