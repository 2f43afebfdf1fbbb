#include "paging/prefix_tree.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/hash.h"

namespace shale {
namespace {

using Tokens = std::span<const std::int32_t>;

struct TokensBefore {
  using is_transparent = void;
  bool operator()(Tokens a, Tokens b) const { return std::ranges::lexicographical_compare(a, b); }
};

// In order, so that the child which shares most with given tokens is one of two neighbours.
using Children = std::map<std::vector<std::int32_t>, NodeId, TokensBefore>;

using Roots = std::map<std::string, Children, std::less<>>;  // by salt, none of them empty

struct Node {
  NodeId parent = kNoNode;
  Roots::iterator salt = {};
  PoolBlockId block = 0;
  std::uint32_t reproducible = 0;  // of its tokens, the first so many
  NodeKey key = 0;
  std::uint64_t name = 0;  // given by the caller; 0: none
  double visited_s = 0;
  Children children;
  const std::vector<std::int32_t>* tokens = nullptr;  // its place among the parent's children; null while unused
};

std::uint32_t common_prefix(Tokens a, Tokens b) {
  return static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

struct PrefixTree::State {
  PagePool& pool;
  std::unique_ptr<EvictionPolicy> policy;
  Roots roots = {};
  std::vector<Node> nodes = {};  // by NodeId
  std::vector<NodeId> unused = {};
  std::vector<std::uint32_t> holders = std::vector<std::uint32_t>(pool.blocks_total());  // by block: nodes
  std::uint64_t tick = 0;  // requests seen: calls of `adopt`
  double time_s = 0;       // when the last of them arrived
  std::uint64_t evictions = 0;
  std::function<void(std::uint64_t)> told_evicted = {};
  // Blocks that nothing but the tree holds, as long as the pool's sharings are these.
  std::uint32_t evictable = 0;
  std::uint64_t counted_at = std::numeric_limits<std::uint64_t>::max(), counts = 0;

  std::uint32_t block_size() const { return pool.shape().block_size; }
  // Whether nobody but nodes holds the block: one, or several of different salts.
  bool alone(PoolBlockId block) const { return pool.references(block) == holders[block]; }
  // The children of a node, or where it is none the roots of a salt.
  Children& children(NodeId node, Roots::iterator salt) {
    return node == kNoNode ? salt->second : nodes[node].children;
  }
  const Children& children(NodeId node, Roots::const_iterator salt) const {
    return node == kNoNode ? salt->second : nodes[node].children;
  }

  struct Match {
    std::vector<NodeId> path;
    std::uint32_t tokens = 0;        // matched along the path
    std::uint32_t in_last = 0;       // of them in the last node
    std::uint32_t reproducible = 0;  // of them, the first so many
    bool whole(const State& state) const { return path.empty() || in_last == state.nodes[path.back()].tokens->size(); }
  };
  Match find(Tokens tokens, std::string_view salt) const;
  static std::pair<NodeId, std::uint32_t> closest_child(const Children& siblings, Tokens tokens);

  NodeKey key(NodeId parent, Tokens tokens, std::string_view salt) const {
    const NodeKey before = salt.empty() ? 0 : hash64(std::as_bytes(std::span(salt)), 1);
    return hash64(std::as_bytes(tokens), parent == kNoNode ? before : nodes[parent].key);
  }
  NodeId add(NodeId parent, Tokens tokens, Roots::iterator salt);
  void extend(NodeId leaf, Tokens tokens);
  // The block that holds a node's tokens, in place of the one it had.
  void hold(NodeId id, std::optional<PoolBlockId> before, PoolBlockId block, std::uint32_t reproducible);
  void release(PoolBlockId block);
  void remove(NodeId leaf);
  // By node, once these references are given back: whether somebody holds its block, or one behind it, beside the tree.
  std::vector<bool> staying(std::span<const PoolBlockId> given_back) const;
  std::uint32_t count_evictable(std::span<const PoolBlockId> given_back = {}) const;
  void evict(NodeId leaf);
  // Takes nodes that go from any leaf towards the root, as far as they are leaves by then.
  void prune(const auto& goes, const auto& take) {
    const auto leaf = [&](NodeId id) { return id != kNoNode && nodes[id].tokens && nodes[id].children.empty(); };
    for (NodeId id = 0; id < nodes.size(); ++id) {
      for (NodeId node = id; leaf(node) && goes(node);) take(std::exchange(node, nodes[node].parent));
    }
  }
  void visit(std::span<const NodeId> path, std::size_t inserted_from);
};

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
    const Node& node = s.nodes[match.path[i]];
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

bool PrefixTree::evict_until_free(std::uint32_t blocks, double before_s) {
  State& s = *state_;
  while (s.pool.blocks_free() < blocks) {
    const NodeId leaf = s.policy->victim();
    if (leaf == kNoNode || s.nodes[leaf].visited_s >= before_s) break;
    s.alone(s.nodes[leaf].block) ? s.evict(leaf) : s.policy->pass_over(leaf);
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

std::uint32_t PrefixTree::nodes() const {
  return static_cast<std::uint32_t>(state_->nodes.size() - state_->unused.size());
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
  for (PoolBlockId i = 0; i < holders.size(); ++i) blocks += holders[i] > 0 && leaving[i] == holders[i];
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

Status PrefixTree::check_integrity() const {
  const State& s = *state_;
  std::uint32_t seen = 0;
  std::vector<std::pair<NodeId, Roots::const_iterator>> parents;
  for (auto salt = s.roots.begin(); salt != s.roots.end(); ++salt) {
    if (salt->second.empty()) return fail(ErrorCode::kInternal, "a salt without nodes is kept");
    parents.emplace_back(kNoNode, salt);
  }
  while (!parents.empty()) {
    const auto [parent, salt] = parents.back();
    parents.pop_back();
    Tokens before;
    for (const auto& [tokens, id] : s.children(parent, salt)) {
      const Node& node = s.nodes[id];
      if (Roots::const_iterator(node.salt) != salt) return fail(ErrorCode::kInternal, "node {} is of another salt", id);
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
