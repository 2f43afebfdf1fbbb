// What a prefix tree is made of. Private to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "paging/prefix_tree.h"

namespace shale {

struct PrefixTree::State {
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

}  // namespace shale
