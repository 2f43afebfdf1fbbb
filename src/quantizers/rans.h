// Entropy coding by ranges with static frequencies (rANS: Duda 2013, arXiv 1311.2540), four states side by side so that
// their chains of arithmetic overlap. Symbol number i belongs to state i mod 4; what one writes, the other reads in the
// same order. Any bytes decode to something or fail; none send a reader out of bounds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace shale {

inline constexpr std::uint32_t kRansBits = 12;       // frequencies add up to 2^kRansBits
inline constexpr std::uint32_t kRansLow = 1u << 16;  // states lie in [kRansLow, 2^32)
inline constexpr std::size_t kRansStates = 4;

// Symbols are put in the reverse of the order in which they are read.
class RansWriter {
 public:
  RansWriter() { states_.fill(kRansLow); }

  // A symbol of frequency `count` ≥ 1 whose range begins at `start`.
  void put(std::size_t state, std::uint32_t start, std::uint32_t count) {
    std::uint32_t& x = states_[state];
    // Whether a symbol moves a word is as good as random: nothing branches on it.
    if (written_ == words_.size()) words_.resize(std::max<std::size_t>(1024, 2 * written_));
    const bool high = x >= std::uint64_t{count} << (32 - kRansBits);
    words_[written_] = static_cast<std::uint16_t>(x);
    written_ += high;
    x >>= high ? 16 : 0;
    x = ((x / count) << kRansBits) + x % count + start;
  }

  // Appends the states and the words.
  void finish(std::vector<std::byte>& out) const {
    const auto append = [&](const auto& number) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&number);
      out.insert(out.end(), bytes, bytes + sizeof number);
    };
    for (const std::uint32_t state : states_) append(state);
    for (std::size_t i = written_; i > 0; --i) append(words_[i - 1]);
  }

 private:
  std::array<std::uint32_t, kRansStates> states_;
  std::vector<std::uint16_t> words_;  // the first written_
  std::size_t written_ = 0;
};

class RansReader {
 public:
  explicit RansReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes.size() < sizeof states_) {
      sound_ = false;
      states_.fill(kRansLow);
      return;
    }
    std::memcpy(states_.data(), bytes.data(), sizeof states_);
    at_ = sizeof states_;
  }

  // Where in [0, 2^kRansBits) the next symbol of this state lies; its range must then be taken.
  std::uint32_t slot(std::size_t state) const { return states_[state] & ((1u << kRansBits) - 1); }
  void take(std::size_t state, std::uint32_t start, std::uint32_t count) {
    std::uint32_t& x = states_[state];
    x = count * (x >> kRansBits) + slot(state) - start;
    if (x >= kRansLow) return;
    std::uint16_t word = 0;
    if (bytes_.size() - at_ >= sizeof word) {
      std::memcpy(&word, bytes_.data() + at_, sizeof word);
      at_ += sizeof word;
    } else {
      sound_ = false;
    }
    x = x << 16 | word;
  }

  // Whether all bytes were read, none were missing, and the states are those that a writer starts with.
  bool ended_soundly() const {
    for (const std::uint32_t state : states_) {
      if (state != kRansLow) return false;
    }
    return sound_ && at_ == bytes_.size();
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool sound_ = true;
  std::array<std::uint32_t, kRansStates> states_;
};

}  // namespace shale
