// Exact KV of token prefixes, shared between requests: a tree over token pages.
//
// A node is one block's worth of tokens (up to block_size; only a leaf may hold fewer) and holds one counted reference
// of the block, which nodes of other salts may hold, too. A node is never evicted before its descendants. Only exact KV
// may be inserted. How many of a prefix's first tokens are *reproducible*, computed as prompts are (model/model.h), is
// known of each. Requests of one salt find what requests of that salt left, and nothing else. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "paging/eviction_policy.h"
#include "paging/sequence.h"

namespace shale {

inline constexpr std::uint32_t kAllTokens = std::numeric_limits<std::uint32_t>::max();

class PrefixTree {
 public:
  PrefixTree(PagePool& pool, std::unique_ptr<EvictionPolicy> policy);
  ~PrefixTree();

  // The longest cached prefix of `tokens`, token by token (it may end inside a node). Begins a request, which arrived
  // at `time_s`: the policy's clock advances and the path counts as visited; an `insert` before the next `adopt` is the
  // same request. The sequence gets shared references; it must be empty. Returns the tokens matched, at most
  // `tokens.size()`.
  std::uint32_t adopt(std::span<const std::int32_t> tokens, Sequence& sequence, double time_s = 0,
                      std::string_view salt = {});
  // As `adopt`, without taking or touching anything; and how many of those, from the first, are reproducible.
  struct Prefix {
    std::uint32_t tokens = 0, reproducible = 0;
  };
  Prefix prefix(std::span<const std::int32_t> tokens, std::string_view salt = {}) const;
  std::uint32_t match(std::span<const std::int32_t> tokens, std::string_view salt = {}) const {
    return prefix(tokens, salt).tokens;
  }
  // How many nodes that `adopt` would share have a block that somebody holds beside the tree.
  std::uint32_t in_use(std::span<const std::int32_t> tokens, std::string_view salt = {}) const;
  // Inserts the first tokens.size() tokens of an exact sequence whose heads agree there, the first `reproducible` of
  // which are so. Tokens already present keep their node; its block is replaced by one of which more is reproducible. A
  // leaf with fewer tokens that the new tokens extend takes them and their block in place of its own.
  // `names`, of the tokens' whole pages, one each or none, are what others call them (on_evicted).
  // kInvalidArgument, changing nothing, for a lossy sequence or one that diverges earlier.
  Status insert(std::span<const std::int32_t> tokens, const Sequence& sequence, std::uint32_t reproducible = kAllTokens,
                std::string_view salt = {}, std::span<const std::uint64_t> names = {});
  // Told the name of every page with one that is evicted; must not call the tree.
  void on_evicted(std::function<void(std::uint64_t name)> told);
  // Evicts leaves by the policy until the pool has `blocks` free blocks; false when it has not and no leaf is left
  // whose block only the tree holds. Blocks that sequences still hold would not become free, so their nodes are passed
  // over. Ends before a leaf that was visited at or after `before_s`.
  bool evict_until_free(std::uint32_t blocks, double before_s = std::numeric_limits<double>::infinity());
  // Evicts the nodes of these blocks that only one sequence holds beside the tree, so that it holds them alone, and
  // those behind them, which nobody holds. Not those before a node that stays.
  void give_up(std::span<const PoolBlockId> blocks);
  // Forgets everything; blocks that sequences hold live on with them. Not counted as evictions.
  void clear();

  std::uint32_t nodes() const;
  // Blocks that nothing but the tree holds: evict_until_free could free as many. Visits every block where somebody has
  // begun or ceased to share one since it last did.
  std::uint32_t evictable() const;
  // As if these references, one for each time that a block is named, had been given back. Visits every block.
  std::uint32_t evictable(std::span<const PoolBlockId> given_back) const;
  // Nodes that hold the block.
  std::uint32_t holders(PoolBlockId block) const;
  std::uint64_t counts() const;  // times that it visited them all
  std::uint64_t evictions() const;
  Status check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale
