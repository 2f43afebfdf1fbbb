// Lossy prefixes that still lie in the pool: what was loaded for one request serves those that come after it.
//
// The tree of exact blocks has no place for them: heads may have kept rows of their own, and what comes after such
// rows depends on all of them. So each is kept whole, as the sequence that it was loaded into.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "cache/retrieval.h"
#include "extents/block_keys.h"
#include "paging/prefix_tree.h"
#include "paging/sequence.h"

namespace shale {

struct LossyPrefix {
  BlockKey last;   // of its last block: names all tokens up to there
  Sequence pages;  // shared with whoever began with it
  std::vector<SourceUsed> sources;
  double used_s = 0;
  mutable std::uint32_t pages_in_use = 0;  // by others than lossy prefixes and the tree; counted by LossyPrefixes

  std::uint32_t blocks() const { return pages.length() / pages.pool().shape().block_size; }
};

// Not thread-safe.
class LossyPrefixes {
 public:
  // Replaces one with the same blocks.
  void keep(LossyPrefix prefix);
  // The longest that `keys` begin with and that is accepted; null where there is none.
  using Accepts = std::function<bool(const LossyPrefix&)>;
  LossyPrefix* find(std::span<const BlockKey> keys, const Accepts& accepts);

  bool empty() const { return prefixes_.empty(); }
  // The one used longest ago whose pages nobody else holds; null where there is none.
  const LossyPrefix* oldest() const;
  void drop(const LossyPrefix& prefix);
  std::uint64_t evictions() const { return evictions_; }
  // Blocks that dropping all that nobody else holds would free, about. The tree's nodes of such a block leave with it.
  std::uint32_t evictable(const PrefixTree& tree) const;
  // Blocks of one of them that are not among those.
  std::uint32_t in_use(const LossyPrefix& prefix, const PrefixTree& tree) const;

 private:
  // Counts pages anew once somebody began or ceased to share one.
  void count(const PrefixTree& tree) const;

  std::list<LossyPrefix> prefixes_;
  mutable std::uint32_t evictable_pages_ = 0;
  mutable std::optional<std::uint64_t> sharings_counted_;  // of the pool, for which the counts are
  std::uint64_t evictions_ = 0;
};

}  // namespace shale
