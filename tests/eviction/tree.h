// A tree, kept plainly, that tells a policy what it does to it.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "eviction/policies.h"

namespace shale {

class Tree {
 public:
  explicit Tree(EvictionPolicy& policy) : policy_(policy) {}

  struct Node {
    NodeId parent = kNoNode;
    NodeKey key = 0;
    std::map<int, NodeId> children = {};
    std::uint64_t last_access = 0, visits = 0, inserted = 0;  // `inserted`: a serial number
    std::uint64_t depth = 0;
    bool partial = false;
  };
  static constexpr NodeKey kPartial = NodeKey{1} << 63;
  struct Visit {
    std::vector<NodeId> path;
    std::size_t inserted_from = 0;
  };

  const std::map<NodeId, Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_.at(id); }
  bool is_leaf(NodeId id) const { return nodes_.contains(id) && node(id).children.empty(); }
  bool empty() const { return nodes_.empty(); }
  std::size_t size() const { return nodes_.size(); }
  std::uint64_t tick() const { return tick_; }

  // A request: visits the path of these labels as far as it is there and inserts the rest. A new last block that is
  // partial has another key until a request reaches its end.
  Visit serve(const std::vector<int>& labels, bool last_is_partial = false) {
    ++tick_;
    Visit visit;
    std::vector<NodeKey> keys;
    std::map<int, NodeId>* children = &roots_;
    for (const int label : labels) {
      const auto [child, fresh] = children->try_emplace(label, kNoNode);
      const NodeId parent = visit.path.empty() ? kNoNode : visit.path.back();
      if (fresh) {
        child->second = unused_.empty() ? static_cast<NodeId>(nodes_.size()) : unused_.back();
        if (!unused_.empty()) unused_.pop_back();
        nodes_[child->second] = {
            .parent = parent,
            .key = 1000003 * (parent == kNoNode ? 7 : node(parent).key) + static_cast<NodeKey>(label),
            .inserted = ++inserted_,
            .depth = visit.path.size() + 1};
      } else {
        ++visit.inserted_from;
      }
      Node& reached = nodes_.at(child->second);
      const bool partial = last_is_partial && visit.path.size() + 1 == labels.size();
      if (partial ? fresh : reached.partial) {
        reached.partial = partial;
        reached.key ^= kPartial;
      }
      reached.last_access = tick_;
      ++reached.visits;
      visit.path.push_back(child->second);
      keys.push_back(reached.key);
      labels_[child->second] = label;
      children = &reached.children;
    }
    policy_.access({.path = visit.path,
                    .keys = keys,
                    .inserted_from = visit.inserted_from,
                    .last_is_partial = last_is_partial,
                    .tick = tick_});
    return visit;
  }

  void evict(NodeId id) {
    const NodeId parent = node(id).parent;
    (parent == kNoNode ? roots_ : nodes_.at(parent).children).erase(labels_.at(id));
    nodes_.erase(id);
    unused_.push_back(id);
    policy_.evicted(id, parent, parent != kNoNode && is_leaf(parent));
  }

  NodeId any(std::mt19937& random) const {
    return std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(random() % nodes_.size()))->first;
  }

 private:
  EvictionPolicy& policy_;
  std::map<int, NodeId> roots_;
  std::map<NodeId, Node> nodes_;
  std::map<NodeId, int> labels_;
  std::vector<NodeId> unused_;
  std::uint64_t tick_ = 0, inserted_ = 0;
};

// Some come often, some once, and what was evicted returns.
inline std::vector<int> random_path(std::mt19937& random, std::size_t length_max = 6) {
  std::vector<int> labels(1 + random() % length_max);
  for (int& label : labels) label = static_cast<int>(random() % 8 == 0 ? random() % 50 : random() % 3);
  return labels;
}

}  // namespace shale
