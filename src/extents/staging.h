// A bound on bytes that are on their way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <utility>

namespace shale {

enum class StagedFor : std::uint8_t {
  kSaves,     // what lies nowhere yet
  kBecoming,  // what it is decoded and encoded into before it lies anywhere
  kCopies,    // a second copy on its way, for which nobody waits
  kMoves,
  kLoads,
  kHanging,  // moves that a silent tier holds up
};

// A part of the room is kept for moves, and one for loads: saves that wait for room on a tier would hold up the moves
// that make it, and requests. One of each kind always goes on. What hangs is beside the bound, so that nothing waits
// for it: no more is sent to where it hangs. Thread-safe. Never waits.
class Staging {
 public:
  explicit Staging(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // A share of the room, given back with its owner. May outlive nothing of the staging's.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : staging_(std::exchange(other.staging_, nullptr)), what_(other.what_), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(staging_, other.staging_);
      std::swap(what_, other.what_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { turn_into(what_, 0); }
    explicit operator bool() const { return staging_ != nullptr; }
    // Makes it so many bytes, by default as many, of that kind, from now on.
    void turn_into(StagedFor what) { turn_into(what, bytes_); }
    void turn_into(StagedFor what, std::uint64_t bytes) {
      if (staging_) staging_->exchange(what_, bytes_, what, bytes);
      what_ = what;
      bytes_ = bytes;
    }

   private:
    friend class Staging;
    Share(Staging* staging, StagedFor what, std::uint64_t bytes) : staging_(staging), what_(what), bytes_(bytes) {}
    Staging* staging_ = nullptr;
    StagedFor what_ = StagedFor::kSaves;
    std::uint64_t bytes_ = 0;
  };

  // Empty where they do not fit beside others of the kind; `always` takes them all the same.
  Share take(StagedFor what, std::uint64_t bytes, bool always = false) {
    const std::lock_guard lock(mutex_);
    if (!always && used_[index(what)] > 0 && !fits(what, bytes)) return {};
    used_[index(what)] += bytes;
    return {this, what, bytes};
  }
  std::uint64_t used(StagedFor what) const {
    const std::lock_guard lock(mutex_);
    return used_[index(what)];
  }
  std::uint64_t used() const {
    const std::lock_guard lock(mutex_);
    return std::accumulate(used_.begin(), used_.end(), std::uint64_t{0});
  }
  std::uint64_t bytes_max() const { return bytes_max_; }

 private:
  static std::size_t index(StagedFor what) { return static_cast<std::size_t>(what); }
  std::uint64_t kept(StagedFor what) const {
    return what == StagedFor::kMoves ? bytes_max_ / 4 : what == StagedFor::kLoads ? bytes_max_ / 8 : 0;
  }
  bool fits(StagedFor what, std::uint64_t bytes) const {
    if (used_[index(what)] + bytes <= kept(what)) return true;
    std::uint64_t taken = bytes;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (i == index(StagedFor::kHanging)) continue;
      taken += i == index(what) ? used_[i] : std::max(used_[i], kept(static_cast<StagedFor>(i)));
    }
    return taken <= bytes_max_;
  }
  void exchange(StagedFor from, std::uint64_t bytes, StagedFor to, std::uint64_t bytes_then) {
    const std::lock_guard lock(mutex_);
    used_[index(from)] -= bytes;
    used_[index(to)] += bytes_then;
  }

  const std::uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::array<std::uint64_t, 6> used_ = {};
};

}  // namespace shale
