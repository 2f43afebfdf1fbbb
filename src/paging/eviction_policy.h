// Which block of a prefix tree goes next. Implemented in `eviction/`, one file each; used by the engine's prefix tree,
// by tiers and by the simulator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace shale {

// Dense number of a node; the tree reuses numbers of evicted nodes.
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = ~NodeId{0};

// Names a block by its tokens and all tokens before it: the same tokens after the same prefix have the same key in
// every life of their node, so that a policy can keep a record of what it evicted.
using NodeKey = std::uint64_t;

// One request's visit, root side first.
struct PathAccess {
  std::span<const NodeId> path;     // each the child of the one before it
  std::span<const NodeKey> keys;    // of the path's nodes; a hit leaf whose key differs from before has grown
  std::size_t inserted_from = 0;    // path[inserted_from …] are new nodes, the nodes before it are hits
  bool counts = true;               // false for a look-up of hits alone: when they were used is renewed, not how often
  bool last_is_partial = false;     // the last block is not full: as long as it stays so, nothing can follow it
  std::uint32_t answer_tokens = 0;  // that follow the path; 0 where they are not known yet
  std::uint64_t tick = 0;           // counts processed requests; never goes back
  double time_s = 0;                // of arrival, on any one clock that never goes back; 0 where nobody keeps one
};

// The tree tells a policy of whole paths; all nodes of a path get the same stamp, so a node is never older than its
// descendants. A node that one tick visits twice was visited once. A policy keeps whatever it needs in arrays by
// NodeId. Deterministic; not thread-safe.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void access(const PathAccess& visit) = 0;
  // The leaf to evict, or kNoNode when nothing is left. The tree answers with `evicted` for it, or with `pass_over`
  // when it cannot go now (its bytes are in use).
  virtual NodeId victim() = 0;
  // `parent` (kNoNode for none) becomes a leaf by this when `parent_is_leaf`. Also for leaves that nobody asked to go.
  virtual void evicted(NodeId node, NodeId parent, bool parent_is_leaf) = 0;
  // The leaf is no candidate until `reconsider`.
  virtual void pass_over(NodeId node) = 0;
  // Every leaf that was passed over is a candidate again, as old as it was.
  virtual void reconsider() = 0;
  // How many evicted blocks it keeps a record of.
  virtual std::uint64_t ghosts() const { return 0; }
};

}  // namespace shale
