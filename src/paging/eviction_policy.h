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

// The tree tells a policy of whole paths, root side first; all nodes of a path get the same stamp, so a node is never
// older than its descendants. `tick` counts processed requests and never goes back; a node that one tick visits twice
// was visited once. A policy keeps whatever it needs in arrays by NodeId. Deterministic; not thread-safe.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // `path[inserted_from …]` are new nodes (each the child of the one before it), the nodes before it are hits.
  virtual void access(std::span<const NodeId> path, std::size_t inserted_from, std::uint64_t tick) = 0;
  // The leaf to evict, or kNoNode when nothing is left. The tree answers with `evicted` for it, or with `pass_over`
  // when it cannot go now (its bytes are in use).
  virtual NodeId victim() = 0;
  // `parent` (kNoNode for none) becomes a leaf by this when `parent_is_leaf`. Also for leaves that nobody asked to go.
  virtual void evicted(NodeId node, NodeId parent, bool parent_is_leaf) = 0;
  // The leaf is no candidate until `reconsider`.
  virtual void pass_over(NodeId node) = 0;
  // Every leaf that was passed over is a candidate again, as old as it was.
  virtual void reconsider() = 0;
};

}  // namespace shale
