// A bound on bytes that are on their way.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace shale {

// Thread-safe. Never waits.
class Staging {
 public:
  explicit Staging(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // A share of the room, given back with its owner. May outlive nothing of the staging's.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : staging_(std::exchange(other.staging_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(staging_, other.staging_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (staging_) staging_->used_ -= bytes_;
    }
    explicit operator bool() const { return staging_ != nullptr; }
    std::uint64_t bytes() const { return staging_ ? bytes_ : 0; }

   private:
    friend class Staging;
    Share(Staging* staging, std::uint64_t bytes) : staging_(staging), bytes_(bytes) {}
    Staging* staging_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  // Empty where they do not fit; `always` takes them all the same.
  Share take(std::uint64_t bytes, bool always) {
    const std::uint64_t before = used_.fetch_add(bytes);
    if (before + bytes > bytes_max_ && !always) {
      used_ -= bytes;
      return {};
    }
    return {this, bytes};
  }
  std::uint64_t used() const { return used_; }
  std::uint64_t bytes_max() const { return bytes_max_; }

 private:
  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> used_ = 0;
};

}  // namespace shale
