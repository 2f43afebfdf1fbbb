// A bound on bytes that are on their way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace shale {

enum class StagedFor { kSaves, kMoves, kLoads };

// A part of the room is kept for moves, and one for loads: saves that wait for room on a tier would hold up the moves
// that make it, and requests. Thread-safe. Never waits.
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
    ~Share() {
      if (staging_) staging_->give_back(what_, bytes_);
    }
    explicit operator bool() const { return staging_ != nullptr; }
    std::uint64_t bytes() const { return staging_ ? bytes_ : 0; }

   private:
    friend class Staging;
    Share(Staging* staging, StagedFor what, std::uint64_t bytes) : staging_(staging), what_(what), bytes_(bytes) {}
    Staging* staging_ = nullptr;
    StagedFor what_ = StagedFor::kSaves;
    std::uint64_t bytes_ = 0;
  };

  // Empty where they do not fit; `always` takes them all the same.
  Share take(StagedFor what, std::uint64_t bytes, bool always) {
    const std::lock_guard lock(mutex_);
    if (!always && !fits(what, bytes)) return {};
    used_[index(what)] += bytes;
    return {this, what, bytes};
  }
  std::uint64_t used(StagedFor what) const {
    const std::lock_guard lock(mutex_);
    return used_[index(what)];
  }
  std::uint64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_[0] + used_[1] + used_[2];
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
    for (const StagedFor each : {StagedFor::kSaves, StagedFor::kMoves, StagedFor::kLoads}) {
      taken += each == what ? used_[index(each)] : std::max(used_[index(each)], kept(each));
    }
    return taken <= bytes_max_;
  }
  void give_back(StagedFor what, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_[index(what)] -= bytes;
  }

  const std::uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::array<std::uint64_t, 3> used_ = {};
};

}  // namespace shale
