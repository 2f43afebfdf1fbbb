// Walks the upper convex hull of one cached prefix's configurations in the plane of (bytes, utility): the
// configurations that some price per byte makes the best. All others are worse than a mixture of two of these.
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

// The hull's next vertex after `from` towards fewer bytes: the point of least drop per byte, over points shown one by
// one. Among equals the one that frees least, so that no more is given up than needed, then the first.
class NextVertex {
 public:
  explicit NextVertex(const Point& from) : from_(from) {}
  // Whether the point is the best so far.
  bool consider(const Point& point) {
    if (point.bytes >= from_.bytes) return false;
    const double drop = drop_per_byte(from_, point);
    if (any_ && (drop > best_drop_ || (drop == best_drop_ && point.bytes <= best_.bytes))) return false;
    any_ = true;
    best_ = point;
    best_drop_ = drop;
    return true;
  }
  const Point* found() const { return any_ ? &best_ : nullptr; }  // nullptr when no point has fewer bytes

 private:
  Point from_, best_;
  double best_drop_ = 0;
  bool any_ = false;
};

// As an element of `points`. Walking the whole hull costs O(points · vertices), and a cached prefix has few vertices.
inline const Point* next_vertex(std::span<const Point> points, const Point& from) {
  NextVertex next(from);
  const Point* best = nullptr;
  for (const Point& point : points) {
    if (next.consider(point)) best = &point;
  }
  return best;
}

}  // namespace shale
