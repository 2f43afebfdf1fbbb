#include "paging/prefix_tree.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <string>
#include <utility>

#include "paging/prefix_tree_state.h"

namespace shale {
namespace {

std::uint32_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::pair<NodeId, std::uint32_t> PrefixTree::State::closest_child(const Children& siblings, Tokens tokens) {
  std::pair<NodeId, std::uint32_t> closest{kNoNode, 0};
  const auto consider = [&](Children::const_iterator child) {
    const std::uint32_t common = common_prefix(tokens, child->first);
    if (common > closest.second) closest = {child->second, common};
  };
  const auto after = siblings.lower_bound(tokens);
  if (after != siblings.end()) consider(after);
  if (after != siblings.begin()) consider(std::prev(after));
  return closest;
}

PrefixTree::State::Match PrefixTree::State::find(Tokens tokens, std::string_view salt) const {
  Match match;
  const auto own = roots.find(salt);
  if (own == roots.end()) return match;
  NodeId parent = kNoNode;
  while (match.tokens < tokens.size()) {
    const Tokens page = tokens.subspan(match.tokens, std::min<std::size_t>(block_size(), tokens.size() - match.tokens));
    const auto [child, common] = closest_child(children(parent, own), page);
    if (child == kNoNode) break;
    match.path.push_back(child);
    if (match.reproducible == match.tokens) match.reproducible += std::min(common, nodes[child].reproducible);
    match.tokens += common;
    match.in_last = common;
    if (common < block_size()) break;
    parent = child;
  }
  return match;
}

// Without a block yet.
NodeId PrefixTree::State::add(NodeId parent, Tokens tokens, Roots::iterator salt) {
  if (unused.empty()) {
    unused.push_back(static_cast<NodeId>(nodes.size()));
    nodes.emplace_back();
  }
  const NodeId id = unused.back();
  unused.pop_back();
  const auto [child, fresh] = children(parent, salt).emplace(std::vector(tokens.begin(), tokens.end()), id);
  assert(fresh);
  nodes[id].parent = parent;
  nodes[id].salt = salt;
  nodes[id].key = key(parent, tokens, salt->first);
  nodes[id].tokens = &child->first;
  return id;
}

void PrefixTree::State::hold(NodeId id, std::optional<PoolBlockId> before, PoolBlockId block,
                             std::uint32_t reproducible) {
  pool.retain_block(block);
  ++holders[block];
  if (before) release(*before);
  nodes[id].block = block;
  nodes[id].reproducible = reproducible;
}

void PrefixTree::State::extend(NodeId leaf, Tokens tokens) {
  Node& node = nodes[leaf];
  assert(node.children.empty());
  Children& siblings = children(node.parent, node.salt);
  auto entry = siblings.extract(*node.tokens);
  entry.key().assign(tokens.begin(), tokens.end());
  node.tokens = &siblings.insert(std::move(entry)).position->first;
  node.key = key(node.parent, tokens, node.salt->first);
}

void PrefixTree::State::visit(std::span<const NodeId> path, std::size_t inserted_from) {
  std::vector<NodeKey> keys;
  for (const NodeId node : path) {
    keys.push_back(nodes[node].key);
    nodes[node].visited_s = time_s;
  }
  policy->access({.path = path,
                  .keys = keys,
                  .inserted_from = inserted_from,
                  .last_is_partial = !path.empty() && nodes[path.back()].tokens->size() < block_size(),
                  .tick = tick,
                  .time_s = time_s});
}

PrefixTree::PrefixTree(PagePool& pool, std::unique_ptr<EvictionPolicy> policy)
    : state_(new State{.pool = pool, .policy = std::move(policy)}) {}
PrefixTree::~PrefixTree() {
  if (state_) clear();
}

PrefixTree::Prefix PrefixTree::prefix(std::span<const std::int32_t> tokens, std::string_view salt) const {
  const State::Match match = state_->find(tokens, salt);
  return {match.tokens, match.reproducible};
}

std::uint32_t PrefixTree::in_use(std::span<const std::int32_t> tokens, std::string_view salt) const {
  const State::Match match = state_->find(tokens, salt);
  return static_cast<std::uint32_t>(
      std::ranges::count_if(match.path, [this](NodeId node) { return !state_->alone(state_->nodes[node].block); }));
}

std::uint32_t PrefixTree::adopt(std::span<const std::int32_t> tokens, Sequence& sequence, double time_s,
                                std::string_view salt) {
  const State::Match match = state_->find(tokens, salt);
  std::vector<PoolBlockId> blocks;
  for (const NodeId node : match.path) blocks.push_back(state_->nodes[node].block);
  sequence.adopt_prefix(blocks, match.tokens);
  ++state_->tick;
  state_->time_s = time_s;
  state_->visit(match.path, match.path.size());
  return match.tokens;
}

Status PrefixTree::insert(std::span<const std::int32_t> tokens, const Sequence& sequence, std::uint32_t reproducible,
                          std::string_view salt, std::span<const std::uint64_t> names) {
  State& s = *state_;
  if (sequence.lossy())
    return fail(ErrorCode::kInvalidArgument, "a lossy sequence cannot be shared as an exact prefix");
  const std::vector<PoolBlockId> blocks = sequence.blocks(static_cast<std::uint32_t>(tokens.size()));
  if (blocks.size() != s.pool.shape().pages_for(static_cast<std::uint32_t>(tokens.size()))) {
    return fail(ErrorCode::kInvalidArgument, "the heads of the sequence do not agree on its first {} tokens",
                tokens.size());
  }
  State::Match match = s.find(tokens, salt);
  const auto page = [&](std::size_t i) {
    return tokens.subspan(i * s.block_size(),
                          std::min<std::size_t>(s.block_size(), tokens.size() - i * s.block_size()));
  };
  const auto reproducible_in = [&](std::size_t i) {
    const std::size_t before = std::min<std::size_t>(i * s.block_size(), reproducible);
    return static_cast<std::uint32_t>(std::min(reproducible - before, page(i).size()));
  };
  const auto hold = [&](std::size_t i, std::optional<PoolBlockId> before) {
    s.hold(match.path[i], before, blocks[i], reproducible_in(i));
  };
  std::size_t there = match.path.size();  // nodes that stay as they are, but for their blocks
  if (match.tokens < tokens.size() && match.in_last % s.block_size() != 0) {
    // The path ends inside a page. A short leaf that these tokens extend grows; else they branch off beside it.
    --there;
    if (match.whole(s)) {
      s.extend(match.path.back(), page(there));
      hold(there, s.nodes[match.path.back()].block);
    } else {
      match.path.pop_back();
    }
  }
  for (std::size_t i = 0; i < there; ++i) {
    const State::Node& node = s.nodes[match.path[i]];
    if (page(i).size() == node.tokens->size() && reproducible_in(i) > node.reproducible) hold(i, node.block);
  }
  const std::size_t inserted_from = match.path.size();
  const auto own = blocks.empty() ? s.roots.end() : s.roots.try_emplace(std::string(salt)).first;
  while (match.path.size() < blocks.size()) {
    const std::size_t i = match.path.size();
    match.path.push_back(s.add(i == 0 ? kNoNode : match.path.back(), page(i), own));
    hold(i, std::nullopt);
  }
  for (std::size_t i = 0; i < names.size(); ++i) s.nodes[match.path[i]].name = names[i];
  s.visit(match.path, inserted_from);
  return {};
}

std::uint32_t PrefixTree::nodes() const {
  return static_cast<std::uint32_t>(state_->nodes.size() - state_->unused.size());
}

Status PrefixTree::check_integrity() const {
  const State& s = *state_;
  std::uint32_t seen = 0;
  std::vector<std::pair<NodeId, State::Roots::const_iterator>> parents;
  for (auto salt = s.roots.begin(); salt != s.roots.end(); ++salt) {
    if (salt->second.empty()) return fail(ErrorCode::kInternal, "a salt without nodes is kept");
    parents.emplace_back(kNoNode, salt);
  }
  while (!parents.empty()) {
    const auto [parent, salt] = parents.back();
    parents.pop_back();
    State::Tokens before;
    for (const auto& [tokens, id] : s.children(parent, salt)) {
      const State::Node& node = s.nodes[id];
      if (State::Roots::const_iterator(node.salt) != salt)
        return fail(ErrorCode::kInternal, "node {} is of another salt", id);
      if (node.parent != parent || node.tokens != &tokens) return fail(ErrorCode::kInternal, "node {} hangs loose", id);
      if (tokens.empty() || tokens.size() > s.block_size()) {
        return fail(ErrorCode::kInternal, "node {} holds {} tokens", id, tokens.size());
      }
      if (tokens.size() < s.block_size() && !node.children.empty()) {
        return fail(ErrorCode::kInternal, "node {} has {} tokens and children", id, tokens.size());
      }
      if (!before.empty() && common_prefix(before, tokens) == before.size()) {
        return fail(ErrorCode::kInternal, "node {} extends its sibling", id);
      }
      if (s.pool.is_split(node.block) || s.pool.references(node.block) == 0) {
        return fail(ErrorCode::kInternal, "node {} has no whole block", id);
      }
      before = tokens;
      ++seen;
      parents.emplace_back(id, salt);
    }
  }
  if (seen != nodes()) return fail(ErrorCode::kInternal, "{} nodes are reachable of {}", seen, nodes());
  if (evictable() != s.count_evictable()) {
    return fail(ErrorCode::kInternal, "{} blocks can be evicted, {} are counted", s.count_evictable(), evictable());
  }
  return {};
}

}  // namespace shale
