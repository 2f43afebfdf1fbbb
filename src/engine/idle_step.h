// Steps while nobody is running, for guests or to store: whoever comes waits for a part of one, or the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shale {

// The largest size whose steps take no longer than the bound, as they were seen to; at least the smallest. A larger one
// is tried where half of its tokens leave room for it.
class IdleStep {
 public:
  explicit IdleStep(double bound_s) : bound_s_(bound_s) {}

  std::uint32_t tokens() const { return kLeastTokens << size_; }

  void took(std::uint32_t tokens, double seconds) {
    if (tokens != this->tokens()) return;  // the last of a context
    double& took_s = took_s_[size_];
    took_s += (seconds - took_s) / (took_s == 0 ? 1 : 4);
    if (took_s > bound_s_) {
      if (size_ > 0) --size_;
    } else if (size_ + 1 < kSizes) {
      const double larger_s = took_s_[size_ + 1];
      const bool known = larger_s > 0 && took_s > bound_s_ / 2;  // half as long: the machine may be faster by now
      if (known ? larger_s <= bound_s_ : took_s <= kRoomToTry * bound_s_) ++size_;
    }
  }

 private:
  static constexpr std::uint32_t kLeastTokens = 8;
  static constexpr std::size_t kSizes = 5;  // up to 128
  static constexpr double kRoomToTry = 0.85;

  const double bound_s_;
  std::array<double, kSizes> took_s_ = {};  // smoothed; 0: never tried
  std::size_t size_ = 1;
};

}  // namespace shale
