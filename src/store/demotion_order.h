// In which order extents leave a tier: the least worth per byte first, where worth is how often an extent is used times
// what computing it again costs.
//
// Frequencies decay by half in a fixed time, all of them alike, so the order changes only when something is used: ranks
// are log2(frequency · cost / bytes) + time of the last use in half-lives, and stay as they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "store/extent_index.h"

namespace shale {

// Not thread-safe. Offers are hints: whoever takes one looks whether the extent still lies on the tier.
class DemotionOrder {
 public:
  explicit DemotionOrder(double half_life_s) : half_life_s_(half_life_s) {}

  double rank(const Extent& extent) const {
    constexpr double kSecondsPerBlock = 1e-3;  // where nobody said what computing costs
    const double cost = extent.recompute_s > 0 ? extent.recompute_s : kSecondsPerBlock * extent.blocks;
    const double worth = std::max(1e-30, static_cast<double>(extent.frequency) * cost);
    return std::log2(worth / static_cast<double>(std::max<std::uint64_t>(1, extent.bytes))) +
           extent.accessed_s / half_life_s_;
  }
  // Also again, after every use is not needed: a rank that has risen is noticed when it is taken.
  void offer(ExtentId id, const Extent& extent) { heap_.emplace(rank(extent), id); }
  std::size_t size() const { return heap_.size(); }
  // The least worth one for which `fits(id)`; the others stay, those for which `gone(id)` do not.
  template <class Fits, class Gone>
  std::optional<ExtentId> take(const ExtentIndex& index, const Fits& fits, const Gone& gone) {
    std::vector<Ranked> kept;
    std::optional<ExtentId> taken;
    while (!heap_.empty() && !taken && kept.size() < kSkippedMax) {
      const Ranked least = heap_.top();
      heap_.pop();
      if (gone(least.second)) continue;
      const double now = rank(index.at(least.second));
      if (now > least.first + kRiseMin) {
        heap_.emplace(now, least.second);
      } else if (fits(least.second)) {
        taken = least.second;
      } else {
        kept.push_back(least);
      }
    }
    for (const Ranked& ranked : kept) heap_.push(ranked);
    return taken;
  }

 private:
  using Ranked = std::pair<double, ExtentId>;
  static constexpr double kRiseMin = 1e-3;
  static constexpr std::size_t kSkippedMax = 1000;  // in use or pinned

  double half_life_s_;
  std::priority_queue<Ranked, std::vector<Ranked>, std::greater<>> heap_;
};

}  // namespace shale
