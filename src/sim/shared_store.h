// What the engines of a simulated fleet share: which contexts lie in the store, and the network before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/contexts.h"

namespace shale {

// Holds everything that was ever put there. Transfers of all engines share its bandwidth, in the order in which they
// begin; times never go back by more than one request takes.
class SharedStore {
 public:
  // 0 bytes a second: the engines' own links are the only limit.
  SharedStore(std::size_t contexts, double bytes_per_s)
      : bytes_per_s_(bytes_per_s), there_from_s_(contexts, std::numeric_limits<double>::infinity()) {}

  bool has(ContextId id, double now_s) const { return there_from_s_[id] <= now_s; }
  // Whether it was not there or on its way already; it is found from `from_s` on.
  bool put(ContextId id, double from_s, std::uint64_t bytes) {
    const bool fresh = there_from_s_[id] == std::numeric_limits<double>::infinity();
    there_from_s_[id] = std::min(there_from_s_[id], from_s);
    if (fresh) bytes_stored_ += bytes;
    return fresh;
  }

  // So much waits to pass that nobody should add what can be left: a copy of what was computed, or a move.
  bool behind(double now_s) const { return busy_until_s_ > now_s + kBehindMaxS; }
  // Seconds from now until so many bytes have passed, behind all that is passing.
  double transfer_s(std::uint64_t bytes, double now_s) const {
    return bytes_per_s_ > 0 ? std::max(busy_until_s_ - now_s, 0.0) + static_cast<double>(bytes) / bytes_per_s_ : 0;
  }
  void transfer(std::uint64_t bytes, double now_s) {
    busy_until_s_ = now_s + transfer_s(bytes, now_s);
    const auto window = static_cast<std::size_t>(now_s / kWindowS);
    if (window >= windows_.size()) windows_.resize(window + 1);
    windows_[window] += bytes;
    bytes_moved_ += bytes;
    ++transfers_;
  }

  std::uint64_t bytes_stored() const { return bytes_stored_; }
  std::uint64_t bytes_moved() const { return bytes_moved_; }
  std::uint64_t transfers() const { return transfers_; }
  // Bytes a second over the busiest ten seconds.
  double peak_bytes_per_s() const {
    return windows_.empty() ? 0 : static_cast<double>(*std::ranges::max_element(windows_)) / kWindowS;
  }

 private:
  static constexpr double kWindowS = 10, kBehindMaxS = 1;

  const double bytes_per_s_;
  std::vector<double> there_from_s_;  // by ContextId
  double busy_until_s_ = 0;
  std::vector<std::uint64_t> windows_;  // bytes
  std::uint64_t bytes_stored_ = 0, bytes_moved_ = 0, transfers_ = 0;
};

}  // namespace shale
