// How often keys were seen lately, roughly and in little memory: a count-min sketch of four rows of 4-bit counters that
// are halved from time to time (TinyLFU: Einziger, Friedman, Manes, 2017). 8 bytes a block of `capacity`, rounded up to
// a power of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "paging/eviction_policy.h"

namespace shale {

class FrequencySketch {
 public:
  // All counters are halved after ten additions a block.
  explicit FrequencySketch(std::uint64_t capacity)
      : words_(std::bit_ceil(std::max<std::uint64_t>(capacity, 8))), period_(10 * capacity + 1) {}

  void add(NodeKey key) {
    for (unsigned row = 0; row < kRows; ++row) {
      const auto [word, shift] = counter(key, row);
      if ((words_[word] >> shift & 15) < 15) words_[word] += std::uint64_t{1} << shift;
    }
    if (++additions_ == period_) halve();
  }

  unsigned estimate(NodeKey key) const {
    unsigned least = 15;
    for (unsigned row = 0; row < kRows; ++row) {
      const auto [word, shift] = counter(key, row);
      least = std::min(least, static_cast<unsigned>(words_[word] >> shift & 15));
    }
    return least;
  }

 private:
  static constexpr unsigned kRows = 4;
  struct Counter {
    std::size_t word;
    unsigned shift;
  };

  // A row is four of the sixteen counters of every word.
  Counter counter(NodeKey key, unsigned row) const {
    static constexpr std::uint64_t kOdd[kRows] = {0xC3A5C85C97CB3127u, 0xB492B66FBE98F273u, 0x9AE16A3B2F90404Fu,
                                                  0xCBF29CE484222325u};
    std::uint64_t mixed = (key + kOdd[row]) * kOdd[row];
    mixed = (mixed ^ mixed >> 32) * kOdd[row];
    return {static_cast<std::size_t>(mixed >> 32 & (words_.size() - 1)),
            4 * (4 * row + static_cast<unsigned>(mixed >> 30 & 3))};
  }

  void halve() {
    for (std::uint64_t& word : words_) word = word >> 1 & 0x7777777777777777u;
    additions_ = period_ / 2;
  }

  std::vector<std::uint64_t> words_;
  std::uint64_t period_, additions_ = 0;
};

}  // namespace shale
