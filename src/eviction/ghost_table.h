// What is remembered of evicted blocks: a value by key, the oldest forgotten first.
//
// Open addressing over a list in order of age; memory grows with what is remembered: the value, 16 bytes beside it, and
// 5 to 11 of the index.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "paging/eviction_policy.h"
#include "paging/reserve_tightly.h"

namespace shale {

template <class Value>
class GhostTable {
 public:
  // Remembers at most `capacity` keys.
  explicit GhostTable(std::uint64_t capacity) : capacity_(capacity), index_(8, kNone) {}

  std::uint64_t size() const { return size_; }

  // Forgets the key; what was remembered of it.
  std::optional<Value> take(BlockKey key) {
    const std::size_t slot = find(key);
    if (index_[slot] == kNone) return std::nullopt;
    const std::uint32_t at = index_[slot];
    erase(slot);
    return entries_[at].value;
  }
  bool contains(BlockKey key) const { return index_[find(key)] != kNone; }

  // As the youngest, in place of what was remembered of the key before.
  void remember(BlockKey key, Value value) {
    if (capacity_ == 0) return;
    if (contains(key)) erase(find(key));
    if (size_ == capacity_) forget_oldest();
    if (4 * (size_ + 1) > 3 * index_.size()) rebuild_index(2 * index_.size());
    const std::size_t slot = find(key);
    std::uint32_t at = unused_;
    if (at == kNone) {
      at = static_cast<std::uint32_t>(entries_.size());
      reserve_tightly(entries_, entries_.size() + 1);
      entries_.emplace_back();
    } else {
      unused_ = entries_[at].younger;
    }
    entries_[at] = {key, value, youngest_, kNone};
    (youngest_ == kNone ? oldest_ : entries_[youngest_].younger) = at;
    youngest_ = at;
    index_[slot] = at;
    ++size_;
  }

  // What was remembered of the key that it forgets.
  std::optional<Value> forget_oldest() {
    if (oldest_ == kNone) return std::nullopt;
    return take(entries_[oldest_].key);
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Entry {
    BlockKey key = 0;
    Value value = {};
    std::uint32_t older = kNone, younger = kNone;  // of an unused entry `younger` is the next unused one
  };

  // Keys may be small numbers: their bits are spread (Fibonacci hashing).
  std::size_t home(BlockKey key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(index_.size())));
  }
  // The slot of the key, or the empty one where it would be.
  std::size_t find(BlockKey key) const {
    std::size_t slot = home(key);
    while (index_[slot] != kNone && entries_[index_[slot]].key != key) slot = (slot + 1) & (index_.size() - 1);
    return slot;
  }

  void erase(std::size_t slot) {
    const std::uint32_t at = index_[slot];
    Entry& entry = entries_[at];
    (entry.older == kNone ? oldest_ : entries_[entry.older].younger) = entry.younger;
    (entry.younger == kNone ? youngest_ : entries_[entry.younger].older) = entry.older;
    entry.younger = unused_;
    unused_ = at;
    --size_;
    // Those behind move up, unless that were before their home.
    const std::size_t mask = index_.size() - 1;
    for (std::size_t next = (slot + 1) & mask; index_[next] != kNone; next = (next + 1) & mask) {
      if (((next - home(entries_[index_[next]].key)) & mask) < ((next - slot) & mask)) continue;
      index_[slot] = index_[next];
      slot = next;
    }
    index_[slot] = kNone;
  }

  void rebuild_index(std::size_t slots) {
    index_.assign(slots, kNone);
    for (std::uint32_t at = oldest_; at != kNone; at = entries_[at].younger) index_[find(entries_[at].key)] = at;
  }

  std::uint64_t capacity_, size_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> index_;  // a power of two; at most three quarters full
  std::uint32_t oldest_ = kNone, youngest_ = kNone, unused_ = kNone;
};

// Where that a key was there is all there is to remember.
struct Nothing {};

}  // namespace shale
