// The base of policies that give every node a rank which only its own visits change: the leaf of the lowest rank goes.
// It keeps the leaves; an implementation writes only `value`.
#pragma once

#include <algorithm>
#include <vector>

#include "eviction/leaf_heap.h"

namespace shale {

class RankedPolicy : public EvictionPolicy {
 public:
  void access(const PathAccess& visit) final {
    const std::span<const NodeId> path = visit.path;
    const std::uint64_t tick = visit.tick;
    if (path.empty()) return;
    nodes_.resize(std::max<std::size_t>(nodes_.size(), *std::ranges::max_element(path) + std::size_t{1}));
    for (std::size_t i = 0; i < path.size(); ++i) {
      Node& node = nodes_[path[i]];
      if (i >= visit.inserted_from) {
        node = {.last_access = tick, .visits = 1, .inserted = ++inserted_};
      } else if (node.last_access != tick) {
        node.last_access = tick;
        ++node.visits;
      }
    }
    if (visit.inserted_from > 0 && visit.inserted_from < path.size()) stops_being_leaf(path[visit.inserted_from - 1]);
    // Of a path only the last node can be a leaf, and it is one if it is new or was one.
    if (visit.inserted_from < path.size() || leaves_.contains(path.back())) rank(path.back());
  }

  NodeId victim() final { return leaves_.empty() ? kNoNode : leaves_.top(); }

  void evicted(NodeId node, NodeId parent, bool parent_is_leaf) final {
    stops_being_leaf(node);
    if (parent_is_leaf) rank(parent);
  }

  void pass_over(NodeId node) final {
    leaves_.remove(node);
    passed_over_.push_back(node);
  }

  void reconsider() final {
    for (const NodeId node : passed_over_) rank(node);
    passed_over_.clear();
  }

 protected:
  struct Node {
    std::uint64_t last_access = 0;
    std::uint64_t visits = 0;    // since it was inserted
    std::uint64_t inserted = 0;  // a serial number
  };
  virtual std::uint64_t value(const Node& node) const = 0;

 private:
  void rank(NodeId node) { leaves_.put(node, {value(nodes_[node]), nodes_[node].inserted}); }
  void stops_being_leaf(NodeId node) {
    if (leaves_.contains(node)) leaves_.remove(node);
    std::erase(passed_over_, node);
  }

  std::vector<Node> nodes_;  // by NodeId
  LeafHeap leaves_;
  std::vector<NodeId> passed_over_;
  std::uint64_t inserted_ = 0;
};

}  // namespace shale
