// The base of the policies: it turns visits of paths into arrivals and hits of single nodes, knows which nodes are
// leaves and passes over what cannot go. An implementation says where a node belongs among `leaves()`, which is
// LeafQueues for most, and with several queues also which leaf goes.
//
// Newcomers, the blocks that a request inserted, take part from the next request on, or when nothing else is left: the
// published algorithms evict first and insert then, where a tree inserts a whole path and is trimmed then. A policy
// whose newcomers compete at once says so (`kCompete`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "eviction/leaf_queues.h"

namespace shale {

enum class Newcomers { kWait, kCompete };

// Fields kept of each node for the implementation, in arrays that nobody else has.
struct NodeFields {
  bool visits = false;  // 4 bytes a node
  bool depths = false;  // 4
  bool keys = false;    // 8
};

// 5 bytes a node beside what `Leaves` takes and what is `kFields`.
template <class Leaves, NodeFields kFields = NodeFields{}>
class PathPolicy : public EvictionPolicy {
 public:
  void access(const PathAccess& visit) final {
    chosen_ = kNoNode;
    if (visit.tick != tick_) settle_newcomers();
    tick_ = visit.tick;
    begin(visit);
    if (visit.path.empty()) return;
    if (visit.inserted_from < visit.path.size()) add(visit);
    if constexpr (kFields.keys) {  // a short leaf that was hit may have grown, and have children since
      keys_[visit.path.back()] = visit.keys.back();
      if (const std::size_t hit = visit.inserted_from; hit > 0) keys_[visit.path[hit - 1]] = visit.keys[hit - 1];
    }
    for (std::size_t i = visit.inserted_from; i-- > 0;) {
      const NodeId found = visit.path[i];
      if (std::exchange(last_ticks_[found], stamp()) == stamp()) continue;
      if (visit.counts) {
        if constexpr (kFields.visits) ++visits_[found];
        hit(found);
      } else {
        renewed(found);
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
    if (!states_[id].arrived) settle_newcomers();
    leaving(id, id == std::exchange(chosen_, kNoNode));
    if (parent_is_leaf && is_candidate(id)) {
      states_[parent].leaf = true;
      leaves_.replace(id, parent);
    } else {
      set_leaf(id, false);
      if (parent_is_leaf) set_leaf(parent, true);
    }
    leaves_.remove(id);
    states_[id] = {};
    if (parent_is_leaf) became_leaf(parent);
  }

  void pass_over(NodeId id) final {
    chosen_ = kNoNode;
    leaves_.leave(id);
    states_[id].passed_over = true;
    passed_over_.push_back(id);
  }

  void reconsider() final {
    chosen_ = kNoNode;
    for (const NodeId id : std::exchange(passed_over_, {})) {
      if (!states_[id].passed_over) continue;
      states_[id].passed_over = false;
      leaves_.enter(id);
    }
  }

 protected:
  explicit PathPolicy(Newcomers newcomers = Newcomers::kWait, Leaves leaves = Leaves())
      : leaves_(std::move(leaves)), newcomers_wait_(newcomers == Newcomers::kWait) {}

  // Called before anything else of a visit.
  virtual void begin(const PathAccess&) {}
  // The node is new, and nothing was evicted for it yet: the time to look up what was kept of its key. What this
  // returns is handed to `arrive`. Deepest first.
  virtual std::uint8_t arriving(NodeId) { return 0; }
  // The newcomer takes its place, by `leaves().put`. Deepest first.
  virtual void arrive(NodeId, std::uint8_t from_arriving) = 0;
  // A request found the node; visits(node) counts it already. Deepest first.
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
  // 1 on arrival, 1 more by each request that finds it; a policy may set it back.
  std::uint32_t& visits(NodeId id)
    requires(kFields.visits)
  {
    return visits_[id];
  }
  // A block without parent has 1.
  std::uint32_t depth(NodeId id) const
    requires(kFields.depths)
  {
    return depths_[id];
  }
  NodeKey key(NodeId id) const
    requires(kFields.keys)
  {
    return keys_[id];
  }
  // Its low bits.
  std::uint32_t last_tick(NodeId id) const { return last_ticks_[id]; }
  bool is_leaf(NodeId id) const { return states_[id].leaf; }
  // Whether the node is a leaf, arrived, not passed over.
  bool is_candidate(NodeId id) const { return states_[id].leaf && !states_[id].passed_over && states_[id].arrived; }
  std::uint64_t tick() const { return tick_; }
  std::uint64_t next_serial() { return ++serial_; }  // from 1; never the same twice

 private:
  struct State {
    bool leaf : 1 = false, passed_over : 1 = false, arrived : 1 = false;
  };
  struct Newcomer {
    NodeId id;
    std::uint8_t from_arriving;
  };

  std::uint32_t stamp() const { return static_cast<std::uint32_t>(tick_); }

  void add(const PathAccess& visit) {
    const auto fresh = visit.path.subspan(visit.inserted_from);
    if (const std::size_t needed = std::ranges::max(fresh) + std::size_t{1}; needed > states_.size()) {
      resize_tightly(states_, needed);
      resize_tightly(last_ticks_, needed);
      if constexpr (kFields.visits) resize_tightly(visits_, needed);
      if constexpr (kFields.depths) resize_tightly(depths_, needed);
      if constexpr (kFields.keys) resize_tightly(keys_, needed);
      leaves_.grow(needed);
      grow(needed);
    }
    if (visit.inserted_from > 0) set_leaf(visit.path[visit.inserted_from - 1], false);
    for (std::size_t i = visit.path.size(); i-- > visit.inserted_from;) {
      const NodeId id = visit.path[i];
      states_[id] = {.leaf = i + 1 == visit.path.size()};
      last_ticks_[id] = stamp();
      if constexpr (kFields.visits) visits_[id] = 1;
      if constexpr (kFields.depths) depths_[id] = static_cast<std::uint32_t>(i + 1);
      if constexpr (kFields.keys) keys_[id] = visit.keys[i];
      newcomers_.push_back({id, arriving(id)});
    }
    if (!newcomers_wait_) settle_newcomers();
  }

  void settle_newcomers() {
    for (const auto [id, from_arriving] : newcomers_) {
      states_[id].arrived = true;
      arrive(id, from_arriving);
      if (states_[id].leaf) leaves_.enter(id);
    }
    newcomers_.clear();
  }

  void set_leaf(NodeId id, bool leaf) {
    if (states_[id].leaf == leaf) return;
    if (is_candidate(id)) leaves_.leave(id);
    states_[id].leaf = leaf;
    states_[id].passed_over = false;
    if (is_candidate(id)) leaves_.enter(id);
  }

  Leaves leaves_;
  std::vector<State> states_;  // these by NodeId
  std::vector<std::uint32_t> last_ticks_, visits_, depths_;
  std::vector<NodeKey> keys_;
  std::vector<Newcomer> newcomers_;  // deepest first
  std::vector<NodeId> passed_over_;
  std::uint64_t tick_ = 0, serial_ = 0;
  NodeId chosen_ = kNoNode;
  bool newcomers_wait_;
};

// Policies whose rank is one number, and those that need a second one among equals.
template <NodeFields kFields = NodeFields{}>
using QueuePolicy = PathPolicy<LeafQueues<std::uint64_t>, kFields>;
template <NodeFields kFields = NodeFields{}>
using RankedPolicy = PathPolicy<LeafQueues<std::pair<std::uint64_t, std::uint64_t>>, kFields>;

}  // namespace shale
