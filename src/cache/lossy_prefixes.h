// Lossy prefixes that still lie in the pool: what was loaded for one request, and computed behind that, serves those
// that come after it.
//
// The tree of exact blocks has no place for them: heads may have kept rows of their own, and what comes after such
// rows depends on all of them. So each is kept whole, as the sequence that it was loaded into. Of what was computed
// behind the lossy forms others may share the front alone.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/retrieval.h"
#include "extents/block_keys.h"
#include "paging/prefix_tree.h"
#include "paging/sequence.h"

namespace shale {

struct LossyPrefix {
  std::vector<BlockKey> keys;    // of its blocks, by their tokens alone
  std::uint32_t lossy_from = 0;  // tokens from this position on were computed behind the lossy ones
  Sequence pages;                // shared with whoever began with it
  std::vector<SourceUsed> sources;
  double used_s = 0;
  std::vector<PageId> held = {};  // of a whole block its first page; noted once it is kept

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(keys.size()); }
  // The fewest of its first blocks that serve without the others: all that came lossily, and the last of which heads
  // kept rows of their own.
  std::uint32_t blocks_min() const;
};

// Not thread-safe.
class LossyPrefixes {
 public:
  // Replaces those that it serves as well: they are in the same forms, of no more blocks.
  void keep(LossyPrefix prefix);
  // The one of which the most first blocks are those of `keys`, and are accepted; of several the one thought to be
  // worth most. Null where there is none.
  struct Found {
    LossyPrefix* prefix = nullptr;
    std::uint32_t blocks = 0;
  };
  // Of its first blocks. It may first note in the prefix what its sources are known to be worth now.
  using Accepts = std::function<bool(LossyPrefix& prefix, std::uint32_t blocks)>;
  Found find(std::span<const BlockKey> keys, const Accepts& accepts);

  bool empty() const { return prefixes_.empty(); }
  // The one used longest ago some pages of which nobody else holds; null where there is none. Whoever stores the rest
  // of it goes on without.
  const LossyPrefix* oldest(const PrefixTree& tree) const;
  void drop(const LossyPrefix& prefix);
  std::uint64_t evictions() const { return evictions_; }
  // Blocks that dropping all that nobody else holds would free, about. The tree's nodes of such a block leave with it.
  std::uint32_t evictable(const PrefixTree& tree) const;
  // The same once these references to blocks, in order, are given back, one for each time that a block is named.
  std::uint32_t evictable(const PrefixTree& tree, std::span<const PoolBlockId> given_back) const;
  // Blocks of one of them that are not among the former.
  std::uint32_t in_use(const LossyPrefix& prefix, const PrefixTree& tree) const;
  // How many of them hold the block, which is whole.
  std::uint32_t holders(PoolBlockId block) const;

 private:
  const PagePool& pool() const { return prefixes_.front().pages.pool(); }
  void let_go(const LossyPrefix& prefix);
  // Whether others hold the page, but for references that are given back.
  bool held_by_others(PageId page, const PrefixTree& tree, std::span<const PoolBlockId> given_back = {}) const;
  std::uint32_t blocks_of(std::span<const PageId> held) const;

  std::list<LossyPrefix> prefixes_;
  std::unordered_map<PageId, std::uint32_t> holders_;  // of what they hold, each page: how many of them
  mutable std::uint32_t evictable_ = 0;
  mutable std::optional<std::uint64_t> sharings_counted_;  // of the pool, for which that is
  std::uint64_t evictions_ = 0;
};

}  // namespace shale
