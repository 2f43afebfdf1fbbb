// Exact KV of token prefixes, shared between requests: a tree over token pages.
//
// A node is one slab's worth of tokens (up to page_tokens; only a leaf may hold fewer) and holds one counted reference
// of the slab. A node is never evicted before its descendants. Only exact KV may be inserted. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "paging/eviction_policy.h"
#include "paging/sequence.h"

namespace shale {

class PrefixTree {
 public:
  PrefixTree(PagePool& pool, std::unique_ptr<EvictionPolicy> policy);
  ~PrefixTree();

  // The longest resident prefix of `tokens`, token by token (it may end inside a node). Counts as an access.
  // The sequence gets shared references; it must be empty. Returns the tokens matched, at most `tokens.size()`.
  std::uint32_t adopt(std::span<const std::int32_t> tokens, Sequence& sequence);
  // As `adopt`, without taking or touching anything.
  std::uint32_t match(std::span<const std::int32_t> tokens) const;
  // Remembers the first tokens.size() tokens of an exact sequence whose heads agree there. Tokens already present keep
  // their node. A leaf with fewer tokens that the new tokens extend is replaced.
  Status insert(std::span<const std::int32_t> tokens, const Sequence& sequence);
  // Evicts leaves by the policy until the pool has `slabs` free slabs; false when the tree is empty and it has not.
  // Slabs that sequences still hold do not become free by this, and are passed over.
  bool make_room(std::uint32_t slabs);
  void clear();

  std::uint32_t nodes() const;
  std::uint64_t evictions() const;
  Status check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale
