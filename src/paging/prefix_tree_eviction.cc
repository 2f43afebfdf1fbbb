// What leaves a prefix tree, and what could.
#include <cassert>
#include <utility>

#include "paging/prefix_tree_state.h"

namespace shale {

void PrefixTree::State::release(PoolBlockId block) {
  --holders[block];
  if (pool.references(block) == 1) --evictable;
  pool.release_block(block);
}

void PrefixTree::State::remove(NodeId leaf) {
  Node& node = nodes[leaf];
  assert(node.children.empty());
  const NodeId parent = node.parent;
  release(node.block);
  const Roots::iterator salt = node.salt;
  children(parent, salt).erase(*node.tokens);
  if (salt->second.empty()) roots.erase(salt);
  node = {};
  unused.push_back(leaf);
  policy->evicted(leaf, parent, parent != kNoNode && nodes[parent].children.empty());
}

void PrefixTree::State::evict(NodeId leaf) {
  if (nodes[leaf].name != 0 && told_evicted) told_evicted(nodes[leaf].name);
  remove(leaf);
  ++evictions;
}

bool PrefixTree::evict_until_free(std::uint32_t blocks, double before_s) {
  State& s = *state_;
  while (s.pool.blocks_free() < blocks) {
    const NodeId leaf = s.policy->victim();
    if (leaf == kNoNode || s.nodes[leaf].visited_s >= before_s) break;
    if (s.alone(s.nodes[leaf].block)) {
      s.evict(leaf);
    } else {
      s.policy->pass_over(leaf);
    }
  }
  s.policy->reconsider();
  return s.pool.blocks_free() >= blocks;
}

void PrefixTree::give_up(std::span<const PoolBlockId> blocks) {
  State& s = *state_;
  const std::vector<bool> stays = s.staying(blocks);
  std::vector<bool> given(s.holders.size());
  for (const PoolBlockId block : blocks) given[block] = true;
  const auto goes = [&](NodeId id) {  // with the first of these blocks on the way to its root
    while (id != kNoNode && !stays[id] && !given[s.nodes[id].block]) id = s.nodes[id].parent;
    return id != kNoNode && !stays[id];
  };
  s.prune(goes, [&s](NodeId leaf) { s.evict(leaf); });
}

void PrefixTree::on_evicted(std::function<void(std::uint64_t)> told) { state_->told_evicted = std::move(told); }

void PrefixTree::clear() {
  state_->prune([](NodeId) { return true; }, [this](NodeId leaf) { state_->remove(leaf); });
}

// A node leaves after those behind it alone, so one in use keeps all before it.
std::vector<bool> PrefixTree::State::staying(std::span<const PoolBlockId> given_back) const {
  std::vector<std::uint32_t> held = holders;
  for (const PoolBlockId block : given_back) ++held[block];
  std::vector<bool> stays(nodes.size());
  for (NodeId id = 0; id < nodes.size(); ++id) {
    if (!nodes[id].tokens || pool.references(nodes[id].block) == held[nodes[id].block]) continue;
    for (NodeId node = id; node != kNoNode && !stays[node]; node = nodes[node].parent) stays[node] = true;
  }
  return stays;
}

std::uint32_t PrefixTree::State::count_evictable(std::span<const PoolBlockId> given_back) const {
  const std::vector<bool> stays = staying(given_back);
  std::vector<std::uint32_t> leaving(holders.size());  // by block: nodes
  for (NodeId id = 0; id < nodes.size(); ++id) leaving[nodes[id].block] += nodes[id].tokens && !stays[id];
  std::uint32_t blocks = 0;
  for (PoolBlockId block = 0; block < holders.size(); ++block) {
    blocks += holders[block] > 0 && leaving[block] == holders[block];
  }
  return blocks;
}

// A node that comes shares its block with whoever computed it; one that goes takes a block along that only it holds, or
// ceases to share it.
std::uint32_t PrefixTree::evictable() const {
  State& s = *state_;
  if (s.counted_at != s.pool.sharings()) {
    s.evictable = s.count_evictable();
    s.counted_at = s.pool.sharings();
    ++s.counts;
  }
  return s.evictable;
}
std::uint32_t PrefixTree::evictable(std::span<const PoolBlockId> given_back) const {
  return state_->count_evictable(given_back);
}
std::uint32_t PrefixTree::holders(PoolBlockId block) const { return state_->holders[block]; }
std::uint64_t PrefixTree::counts() const { return state_->counts; }
std::uint64_t PrefixTree::evictions() const { return state_->evictions; }

}  // namespace shale
