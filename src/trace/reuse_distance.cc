#include "trace/reuse_distance.h"

#include <algorithm>
#include <cmath>

namespace shale {
namespace {

// Sums over slots, from the latest to any before it.
class Timeline {
 public:
  explicit Timeline(std::size_t slots) : left_(slots, 0), tree_(slots + 1, 0) {}

  std::uint64_t left(std::size_t slot) const { return left_[slot]; }

  void add(std::size_t slot, std::int64_t blocks) {
    left_[slot] += static_cast<std::uint64_t>(blocks);
    for (std::size_t i = tree_.size() - 1 - slot; i < tree_.size(); i += i & -i) {
      tree_[i] += static_cast<std::uint64_t>(blocks);
    }
  }
  // Blocks in the slots after `slot`.
  std::uint64_t after(std::size_t slot) const {
    std::uint64_t sum = 0;
    for (std::size_t i = tree_.size() - 2 - slot; i > 0; i -= i & -i) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::uint64_t> left_;
  std::vector<std::uint64_t> tree_;  // of the slots in reverse order, from 1
};

void merge_equal(std::vector<ReuseDistance>& distances) {
  std::sort(distances.begin(), distances.end(),
            [](const ReuseDistance& a, const ReuseDistance& b) { return a.distance < b.distance; });
  std::size_t kept = 0;
  for (const ReuseDistance& next : distances) {
    if (kept > 0 && distances[kept - 1].distance == next.distance) {
      distances[kept - 1].accesses += next.accesses;
    } else {
      distances[kept++] = next;
    }
  }
  distances.resize(kept);
}

}  // namespace

std::vector<ReuseDistance> reuse_distances(const Trace& trace) {
  constexpr std::uint32_t kNever = ~std::uint32_t{0};
  std::vector<ReuseDistance> distances;
  std::vector<std::uint32_t> slot_of(trace.unique_blocks(), kNever);
  Timeline timeline(trace.requests.size());
  for (std::uint32_t now = 0; now < trace.requests.size(); ++now) {
    const auto path = trace.prompt(trace.requests[now]);
    for (std::size_t begin = 0, end = 0; begin < path.size(); begin = end) {
      const std::uint32_t slot = slot_of[path[begin]];
      while (end < path.size() && slot_of[path[end]] == slot) slot_of[path[end++]] = now;
      const auto blocks = static_cast<std::int64_t>(end - begin);
      if (slot != kNever) {
        distances.push_back({timeline.after(slot) + timeline.left(slot) - 1, end - begin});
        timeline.add(slot, -blocks);
      }
      timeline.add(now, blocks);
    }
    if (distances.size() > 2 * trace.requests.size() + (std::size_t{1} << 20)) merge_equal(distances);
  }
  merge_equal(distances);
  return distances;
}

std::uint64_t distance_quantile(const std::vector<ReuseDistance>& distances, double share) {
  std::uint64_t all = 0, below = 0;
  for (const ReuseDistance& d : distances) all += d.accesses;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all)));
  for (const ReuseDistance& d : distances) {
    below += d.accesses;
    if (below >= wanted) return d.distance;
  }
  return 0;
}

}  // namespace shale
