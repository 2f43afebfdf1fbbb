#include "sim/prefix_cache.h"

#include <algorithm>
#include <cassert>

#include "paging/reserve_tightly.h"

namespace shale {

PrefixCache::PrefixCache(std::uint64_t capacity_blocks, std::uint64_t trace_blocks, EvictionPolicy& policy)
    : capacity_blocks_(capacity_blocks),
      policy_(policy),
      nodes_of_(trace_blocks, kNoNode),
      next_nameless_(trace_blocks) {
  assert(capacity_blocks > 0);
}

std::uint32_t PrefixCache::resident_prefix(const WaitingRequest& request) const {
  const std::span<const BlockId> blocks = request.blocks;
  // No block is resident without the one before it, so the first absent one is found by bisection.
  std::size_t resident = 0, absent = blocks.size() + 1;
  while (absent - resident > 1) {
    const std::size_t middle = (resident + absent) / 2;
    (nodes_of_[blocks[middle - 1]] == kNoNode ? absent : resident) = middle;
  }
  return static_cast<std::uint32_t>(resident);
}

std::uint32_t PrefixCache::touch_prefix(const WaitingRequest& request) {
  const std::uint32_t resident = find(request.blocks);
  policy_.access(
      {.path = path_, .keys = keys_, .inserted_from = resident, .counts = false, .tick = tick_, .time_s = time_s_});
  return resident;
}

std::uint32_t PrefixCache::serve(const Request& request) {
  assert(request.time_s >= time_s_);
  ++tick_;
  time_s_ = request.time_s;
  const std::uint32_t resident = find(request.path);
  for (const BlockId block : request.path.subspan(resident)) {
    keys_.push_back(block);
    insert(block);
  }
  for (std::uint32_t i = 0; i < request.nameless_blocks; ++i) {
    keys_.push_back(next_nameless_++);
    insert(kNoBlock);
  }
  policy_.access({.path = path_,
                  .keys = keys_,
                  .inserted_from = resident,
                  .last_is_partial = request.last_is_partial,
                  .answer_tokens = request.answer_tokens,
                  .tick = tick_,
                  .time_s = time_s_});
  trim();
  return std::min(resident, static_cast<std::uint32_t>(request.prompt_blocks));
}

// Leaves the resident prefix in path_ and keys_.
std::uint32_t PrefixCache::find(std::span<const BlockId> blocks) {
  path_.clear();
  keys_.clear();
  for (const BlockId block : blocks) {
    const NodeId node = nodes_of_[block];
    if (node == kNoNode) break;
    path_.push_back(node);
    keys_.push_back(block);
  }
  return static_cast<std::uint32_t>(path_.size());
}

void PrefixCache::insert(BlockId block) {
  const NodeId parent = path_.empty() ? kNoNode : path_.back();
  NodeId node = unused_;
  if (node == kNoNode) {
    node = static_cast<NodeId>(nodes_.size());
    reserve_tightly(nodes_, nodes_.size() + 1);
    nodes_.emplace_back();
  } else {
    unused_ = nodes_[node].parent;
  }
  nodes_[node] = {.parent = parent, .block = block, .children = 0};
  if (parent != kNoNode) ++nodes_[parent].children;
  ++resident_blocks_;
  path_.push_back(node);
  if (block == kNoBlock) return;
  nodes_of_[block] = node;
  if (observer_ != nullptr) observer_->inserted(block);
}

void PrefixCache::trim() {
  while (resident_blocks_ > capacity_blocks_) {
    const NodeId node = policy_.victim();
    assert(node != kNoNode && nodes_[node].children == 0);
    const auto [parent, block, children] = nodes_[node];
    nodes_[node].parent = unused_;
    unused_ = node;
    --resident_blocks_;
    ++evictions_;
    if (block != kNoBlock) {
      nodes_of_[block] = kNoNode;
      if (observer_ != nullptr) observer_->evicted(block);
    }
    policy_.evicted(node, parent, parent != kNoNode && --nodes_[parent].children == 0);
  }
}

}  // namespace shale
