// What the engines of a simulated fleet share: which contexts lie in the store, and the network before it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "sim/contexts.h"

namespace shale {

// Where it is full, the contexts leave that were least recently put or used, as from a Redis with allkeys-lru; no
// engine is told. Transfers of all engines share its bandwidth, in the order in which they begin; times never go back
// by more than one request takes.
class SharedStore {
 public:
  // 0 bytes a second: the engines' own links are the only limit. 0 bytes of capacity: it holds everything.
  SharedStore(std::size_t contexts, double bytes_per_s, std::uint64_t capacity_bytes)
      : bytes_per_s_(bytes_per_s), capacity_bytes_(capacity_bytes), kept_(contexts) {}

  bool has(ContextId id) const { return kept_[id].there; }
  // Whether it has to be written: it was not there, and there can be room.
  bool put(ContextId id, std::uint64_t bytes) {
    if (has(id)) {
      use(id);
      return false;
    }
    if (capacity_bytes_ > 0) {
      if (bytes > capacity_bytes_) return false;
      while (bytes_stored_ + bytes > capacity_bytes_) evict(recent_.back());
    }
    recent_.push_front(id);
    kept_[id] = {.there = true, .bytes = bytes, .place = recent_.begin()};
    bytes_stored_ += bytes;
    return true;
  }
  // It is read; it must be there.
  void use(ContextId id) { recent_.splice(recent_.begin(), recent_, kept_[id].place); }

  // So much waits to pass that nobody should add what can be left: a copy of what was computed, or a move.
  bool behind(double now_s) const { return busy_until_s_ > now_s + kBehindMaxS; }
  // Seconds from now until so many bytes have passed, behind all that is passing.
  double transfer_s(std::uint64_t bytes, double now_s) const {
    return bytes_per_s_ > 0 ? std::max(busy_until_s_ - now_s, 0.0) + static_cast<double>(bytes) / bytes_per_s_ : 0;
  }
  void transfer(std::uint64_t bytes, double now_s) {
    const double begins_s = bytes_per_s_ > 0 ? std::max(busy_until_s_, now_s) : now_s;
    busy_until_s_ = now_s + transfer_s(bytes, now_s);
    bytes_moved_ += bytes;
    ++transfers_;
    // The bytes pass one after another, in the windows from the first to the last.
    const double first = std::floor(begins_s / kWindowS), last = std::floor(busy_until_s_ / kWindowS);
    if (first == last) return pass(first, static_cast<double>(bytes));
    pass(first, ((first + 1) * kWindowS - begins_s) * bytes_per_s_);
    if (last - first > 1) peak_bytes_ = std::max(peak_bytes_, kWindowS * bytes_per_s_);
    pass(last, (busy_until_s_ - last * kWindowS) * bytes_per_s_);
  }

  std::uint64_t bytes_stored() const { return bytes_stored_; }
  std::uint64_t bytes_evicted() const { return bytes_evicted_; }
  std::uint64_t bytes_moved() const { return bytes_moved_; }  // or begun to
  double busy_until_s() const { return busy_until_s_; }       // when all of them have passed
  std::uint64_t transfers() const { return transfers_; }
  // Bytes a second over the busiest ten seconds.
  double peak_bytes_per_s() const { return peak_bytes_ / kWindowS; }

 private:
  static constexpr double kWindowS = 10, kBehindMaxS = 1;

  struct Kept {
    bool there = false;
    std::uint64_t bytes = 0;
    std::list<ContextId>::iterator place = {};  // while it is there
  };

  void pass(double window, double bytes) { peak_bytes_ = std::max(peak_bytes_, windows_[window] += bytes); }
  void evict(ContextId id) {
    Kept& kept = kept_[id];
    bytes_stored_ -= kept.bytes;
    bytes_evicted_ += kept.bytes;
    recent_.erase(kept.place);
    kept = {};
  }

  const double bytes_per_s_;
  const std::uint64_t capacity_bytes_;
  std::vector<Kept> kept_;       // by ContextId, which are dense: sooner looked up than in an LruMap
  std::list<ContextId> recent_;  // those there, most recently put or used first
  double busy_until_s_ = 0;
  std::map<double, double> windows_;  // bytes, by the window's number; a trace's times may be far apart
  double peak_bytes_ = 0;             // of any
  std::uint64_t bytes_stored_ = 0, bytes_evicted_ = 0, bytes_moved_ = 0, transfers_ = 0;
};

}  // namespace shale
