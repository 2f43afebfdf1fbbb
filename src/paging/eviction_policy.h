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

// The tree tells a policy of whole paths, root side first. `tick` counts processed requests and never goes back.
// A policy keeps whatever it needs in arrays by NodeId. Deterministic; not thread-safe.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // `path[inserted_from …]` are new nodes (each the child of the one before it), the nodes before it are hits.
  virtual void access(std::span<const NodeId> path, std::size_t inserted_from, std::uint64_t tick) = 0;
  // The leaf to evict, or kNoNode when nothing is left. The tree answers with `evicted` for it, or with `pass_over`
  // when it cannot go now (its bytes are in use).
  virtual NodeId victim() = 0;
  // `parent` becomes a leaf by this when `parent_is_leaf`.
  virtual void evicted(NodeId node, NodeId parent, bool parent_is_leaf) = 0;
  virtual void pass_over(NodeId node, std::uint64_t tick) = 0;
};

}  // namespace shale
