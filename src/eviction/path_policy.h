// The base of the policies: it turns visits of paths into arrivals and hits of single nodes, knows which nodes are
// leaves and passes over what cannot go. An implementation says where a node belongs among `leaves()`, which is
// LeafQueues for most, and with several queues also which leaf goes.
//
// Newcomers, the blocks that a request inserted, take part from the next request on, or when nothing else is left: the
// published algorithms make room first and insert then, where a tree inserts a whole path and is trimmed then. A policy
// whose newcomers compete at once says so (`kCompete`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "eviction/leaf_queues.h"

namespace shale {

enum class Newcomers { kWait, kCompete };

template <class Leaves>
class PathPolicy : public EvictionPolicy {
 public:
  void access(const PathAccess& visit) final {
    chosen_ = kNoNode;
    if (visit.tick != tick_) settle_newcomers();
    tick_ = visit.tick;
    begin(visit);
    if (visit.path.empty()) return;
    if (visit.inserted_from < visit.path.size()) add(visit);
    nodes_[visit.path.back()].key = visit.keys.back();
    for (std::size_t i = visit.inserted_from; i-- > 0;) {
      Node& found = nodes_[visit.path[i]];
      if (std::exchange(found.last_tick, stamp()) == stamp()) continue;
      if (visit.counts) {
        ++found.visits;
        hit(visit.path[i]);
      } else {
        renewed(visit.path[i]);
      }
    }
  }

  // Asking again without telling anything in between gives the same answer.
  NodeId victim() final {
    if (chosen_ == kNoNode) chosen_ = choose();
    if (chosen_ == kNoNode && !newcomers_.empty()) {
      settle_newcomers();
      chosen_ = choose();
    }
    return chosen_;
  }

  void evicted(NodeId id, NodeId parent, bool parent_is_leaf) final {
    if (!nodes_[id].arrived) settle_newcomers();
    leaving(id, id == std::exchange(chosen_, kNoNode));
    if (parent_is_leaf && is_candidate(id)) {
      nodes_[id].leaf = false;
      nodes_[parent].leaf = true;
      leaves_.replace(id, parent);
    } else {
      set_leaf(id, false);
      if (parent_is_leaf) set_leaf(parent, true);
    }
    leaves_.remove(id);
    nodes_[id] = {};
    if (parent_is_leaf) became_leaf(parent);
  }

  void pass_over(NodeId id) final {
    chosen_ = kNoNode;
    leaves_.leave(id);
    nodes_[id].passed_over = true;
    passed_over_.push_back(id);
  }

  void reconsider() final {
    chosen_ = kNoNode;
    for (const NodeId id : std::exchange(passed_over_, {})) {
      if (std::exchange(nodes_[id].passed_over, false)) leaves_.enter(id);
    }
  }

 protected:
  explicit PathPolicy(Newcomers newcomers = Newcomers::kWait, Leaves leaves = Leaves())
      : leaves_(std::move(leaves)), newcomers_wait_(newcomers == Newcomers::kWait) {}

  struct Node {
    BlockKey key = 0;
    std::uint32_t last_tick = 0;  // its low bits
    std::uint32_t visits = 0;     // 1 on arrival, 1 more by each request that finds it; a policy may set it back
    std::uint32_t depth = 0;      // of a block without parent: 1
    bool leaf = false, passed_over = false, arrived = false;
  };

  // Before anything else of a visit.
  virtual void begin(const PathAccess&) {}
  // The node is new, and no room was made for it yet: the time to look up what is remembered of its key. What this
  // returns is handed to `arrive`. Deepest first.
  virtual std::uint8_t arriving(NodeId) { return 0; }
  // The newcomer takes its place, by `leaves().put`. Deepest first.
  virtual void arrive(NodeId, std::uint8_t from_arriving) = 0;
  // A request found the node; `visits` counts it already. Deepest first.
  virtual void hit(NodeId) {}
  // A look-up that does not count found the node.
  virtual void renewed(NodeId) {}
  // The leaf to go, or kNoNode.
  virtual NodeId choose() { return leaves_.first(); }
  // The node goes, and is still in its place; `chosen` if `choose` named it.
  virtual void leaving(NodeId, bool /*chosen*/) {}
  // The last child of the node went.
  virtual void became_leaf(NodeId) {}
  // Node numbers below `nodes` may come from now on.
  virtual void grow(std::size_t /*nodes*/) {}

  Leaves& leaves() { return leaves_; }
  Node& node(NodeId id) { return nodes_[id]; }
  // Whether the node is a candidate: a leaf, arrived, not passed over.
  bool is_candidate(NodeId id) const { return nodes_[id].leaf && !nodes_[id].passed_over && nodes_[id].arrived; }
  std::uint64_t tick() const { return tick_; }
  std::uint64_t next_serial() { return ++serial_; }  // from 1; never the same twice

 private:
  struct Newcomer {
    NodeId id;
    std::uint8_t from_arriving;
  };

  std::uint32_t stamp() const { return static_cast<std::uint32_t>(tick_); }

  void add(const PathAccess& visit) {
    const auto fresh = visit.path.subspan(visit.inserted_from);
    if (const std::size_t needed = std::ranges::max(fresh) + std::size_t{1}; needed > nodes_.size()) {
      reserve_tightly(nodes_, needed);
      nodes_.resize(needed);
      leaves_.grow(needed);
      grow(needed);
    }
    if (visit.inserted_from > 0) set_leaf(visit.path[visit.inserted_from - 1], false);
    for (std::size_t i = visit.path.size(); i-- > visit.inserted_from;) {
      const NodeId id = visit.path[i];
      nodes_[id] = {.key = visit.keys[i],
                    .last_tick = stamp(),
                    .visits = 1,
                    .depth = static_cast<std::uint32_t>(i + 1),
                    .leaf = i + 1 == visit.path.size()};
      newcomers_.push_back({id, arriving(id)});
    }
    if (!newcomers_wait_) settle_newcomers();
  }

  void settle_newcomers() {
    for (const auto [id, from_arriving] : newcomers_) {
      nodes_[id].arrived = true;
      arrive(id, from_arriving);
      if (nodes_[id].leaf) leaves_.enter(id);
    }
    newcomers_.clear();
  }

  void set_leaf(NodeId id, bool leaf) {
    if (nodes_[id].leaf == leaf) return;
    if (is_candidate(id)) leaves_.leave(id);
    nodes_[id].leaf = leaf;
    nodes_[id].passed_over = false;
    if (is_candidate(id)) leaves_.enter(id);
  }

  Leaves leaves_;
  std::vector<Node> nodes_;
  std::vector<Newcomer> newcomers_;  // deepest first
  std::vector<NodeId> passed_over_;
  std::uint64_t tick_ = 0, serial_ = 0;
  NodeId chosen_ = kNoNode;
  bool newcomers_wait_;
};

// For policies whose rank is one number, and for those that need a second one among equals.
using QueuePolicy = PathPolicy<LeafQueues<std::uint64_t>>;
using RankedPolicy = PathPolicy<LeafQueues<std::pair<std::uint64_t, std::uint64_t>>>;

}  // namespace shale
