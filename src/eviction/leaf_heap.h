// The leaves of a tree, lowest rank on top: a binary heap that knows where each leaf lies, so that a leaf anywhere in
// it can be re-ranked or taken out in O(log leaves).
#pragma once

#include <cassert>
#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "paging/eviction_policy.h"

namespace shale {

class LeafHeap {
 public:
  // Lower goes first; among equals the newest leaf, that is the one inserted last. A node on a path is inserted before
  // its descendants, so of two equals on one path the deeper goes first.
  struct Rank {
    std::uint64_t value = 0;
    std::uint64_t inserted = 0;  // a serial number
    bool before(const Rank& other) const {
      return value != other.value ? value < other.value : inserted > other.inserted;
    }
  };

  bool empty() const { return heap_.empty(); }
  NodeId top() const { return heap_.front().node; }
  bool contains(NodeId node) const { return node < places_.size() && places_[node] != kAbsent; }

  // Adds the leaf or gives it another rank.
  void put(NodeId node, const Rank& rank) {
    if (node >= places_.size()) places_.resize(node + 1, kAbsent);
    if (places_[node] == kAbsent) {
      places_[node] = heap_.size();
      heap_.push_back({node, rank});
    } else {
      heap_[places_[node]].rank = rank;
    }
    settle(places_[node]);
  }

  void remove(NodeId node) {
    assert(contains(node));
    const std::size_t hole = std::exchange(places_[node], kAbsent);
    const Item last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    heap_[hole] = last;
    places_[last.node] = hole;
    settle(hole);
  }

 private:
  static constexpr std::size_t kAbsent = ~std::size_t{0};
  struct Item {
    NodeId node;
    Rank rank;
  };

  void swap(std::size_t a, std::size_t b) {
    std::swap(heap_[a], heap_[b]);
    places_[heap_[a].node] = a;
    places_[heap_[b].node] = b;
  }

  void settle(std::size_t place) {
    for (; place > 0 && heap_[place].rank.before(heap_[(place - 1) / 2].rank); place = (place - 1) / 2) {
      swap(place, (place - 1) / 2);
    }
    for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].rank.before(heap_[child].rank)) ++child;
      if (!heap_[child].rank.before(heap_[place].rank)) return;
      swap(place, child);
      place = child;
    }
  }

  std::vector<Item> heap_;
  std::vector<std::size_t> places_;  // by NodeId
};

}  // namespace shale
