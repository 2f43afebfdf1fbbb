// Walks the upper convex hull of one entry's configurations in the plane of (bytes, utility): the configurations that
// some price per byte makes the best. All others are worse than a mixture of two of these.
#pragma once

#include <cstdint>
#include <span>

namespace shale {

struct Point {
  std::uint64_t bytes = 0;
  double utility = 0;
  std::uint32_t candidate = 0;
};

// Utility given up per byte freed, going from `from` to `to`, which has fewer bytes. Negative when it is a gain.
inline double drop_per_byte(const Point& from, const Point& to) {
  return (from.utility - to.utility) / static_cast<double>(from.bytes - to.bytes);
}

// The hull's next vertex after `from` towards fewer bytes: the point of least drop per byte. Among equals the one that
// frees least, so that no more is given up than needed, then the first. nullptr when no point has fewer bytes. Walking
// the whole hull costs O(points · vertices), and an entry has few vertices.
inline const Point* next_vertex(std::span<const Point> points, const Point& from) {
  const Point* best = nullptr;
  double best_drop = 0;
  for (const Point& point : points) {
    if (point.bytes >= from.bytes) continue;
    const double drop = drop_per_byte(from, point);
    if (best && (drop > best_drop || (drop == best_drop && point.bytes <= best->bytes))) continue;
    best = &point;
    best_drop = drop;
  }
  return best;
}

}  // namespace shale
