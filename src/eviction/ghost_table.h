// What is kept of evicted blocks: a value by key, the oldest forgotten first.
//
// A hash table with chains, over a list in order of age; memory grows with what is kept: the value, 20 bytes
// beside it, and 4 to 8 of the table.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "paging/eviction_policy.h"
#include "paging/reserve_tightly.h"

namespace shale {

template <class Value>
class GhostTable {
 public:
  // Keeps at most `capacity` keys.
  explicit GhostTable(std::uint64_t capacity) : capacity_(capacity), chains_(8, kNone) {}

  std::uint64_t size() const { return size_; }

  // Forgets the key; what was kept of it.
  std::optional<Value> take(NodeKey key) {
    const std::uint32_t at = *find(key);
    if (at == kNone) return std::nullopt;
    return erase(at);
  }
  bool contains(NodeKey key) { return *find(key) != kNone; }

  // As the youngest, in place of what was kept of the key before.
  void insert(NodeKey key, Value value) {
    if (capacity_ == 0) return;
    take(key);
    if (size_ == capacity_) forget_oldest();
    if (size_ == chains_.size()) rebuild_chains(2 * chains_.size());
    std::uint32_t at = unused_;
    if (at == kNone) {
      at = static_cast<std::uint32_t>(entries_.size());
      reserve_tightly(entries_, entries_.size() + 1);
      entries_.emplace_back();
    } else {
      unused_ = entries_[at].younger;
    }
    std::uint32_t& chain = chains_[chain_of(key)];
    entries_[at] = {key, youngest_, kNone, chain, value};
    (youngest_ == kNone ? oldest_ : entries_[youngest_].younger) = at;
    youngest_ = chain = at;
    ++size_;
  }

  // What was kept of the key that it forgets.
  std::optional<Value> forget_oldest() {
    if (oldest_ == kNone) return std::nullopt;
    return erase(oldest_);
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Entry {
    NodeKey key = 0;
    std::uint32_t older = kNone, younger = kNone;  // of an unused entry `younger` is the next unused one
    std::uint32_t next = kNone;                    // of its chain
    [[no_unique_address]] Value value = {};
  };

  // Keys may be small numbers: their bits are spread (Fibonacci hashing).
  std::size_t chain_of(NodeKey key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(chains_.size())));
  }
  // The link to the key's entry, or the one that ends its chain.
  std::uint32_t* find(NodeKey key) {
    std::uint32_t* link = &chains_[chain_of(key)];
    while (*link != kNone && entries_[*link].key != key) link = &entries_[*link].next;
    return link;
  }

  Value erase(std::uint32_t at) {
    Entry& entry = entries_[at];
    *find(entry.key) = entry.next;
    (entry.older == kNone ? oldest_ : entries_[entry.older].younger) = entry.younger;
    (entry.younger == kNone ? youngest_ : entries_[entry.younger].older) = entry.older;
    entry.younger = unused_;
    unused_ = at;
    --size_;
    return entry.value;
  }

  void rebuild_chains(std::size_t chains) {
    chains_.assign(chains, kNone);
    for (std::uint32_t at = oldest_; at != kNone; at = entries_[at].younger) {
      entries_[at].next = std::exchange(chains_[chain_of(entries_[at].key)], at);
    }
  }

  std::uint64_t capacity_, size_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> chains_;  // where each begins; a power of two
  std::uint32_t oldest_ = kNone, youngest_ = kNone, unused_ = kNone;
};

// The value of tables that keep only that a key was there.
struct Nothing {};

}  // namespace shale
