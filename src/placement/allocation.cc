#include "placement/allocation.h"

#include <algorithm>
#include <cassert>
#include <queue>

namespace shale {
namespace {

// An item's hull, its best point first, each next vertex of fewer bytes, and how far it has gone.
struct Walk {
  std::vector<const Point*> vertices;
  std::size_t at = 0;
};

Walk start(const std::vector<Point>& points) {
  assert(!points.empty());
  const Point* best = &points.front();
  for (const Point& point : points) {
    if (point.utility > best->utility || (point.utility == best->utility && point.bytes < best->bytes)) best = &point;
  }
  Walk walk;
  for (; best; best = next_vertex(points, *best)) walk.vertices.push_back(best);
  return walk;
}

struct Step {
  double drop;
  std::size_t item;
  bool operator<(const Step& other) const { return drop > other.drop || (drop == other.drop && item > other.item); }
};

}  // namespace

Result<Allocation> allocate(std::span<const std::vector<Point>> items, std::uint64_t budget_bytes) {
  std::vector<Walk> walks;
  std::uint64_t bytes = 0, fewest = 0;
  for (const std::vector<Point>& points : items) {
    walks.push_back(start(points));
    bytes += walks.back().vertices.front()->bytes;
    fewest += walks.back().vertices.back()->bytes;
  }
  if (fewest > budget_bytes) {
    return fail(ErrorCode::kInvalidArgument, "{} bytes are too few: no choice takes fewer than {}", budget_bytes,
                fewest);
  }
  std::priority_queue<Step> steps;
  const auto offer = [&](std::size_t item) {
    const Walk& walk = walks[item];
    if (walk.at + 1 < walk.vertices.size()) {
      steps.push({drop_per_byte(*walk.vertices[walk.at], *walk.vertices[walk.at + 1]), item});
    }
  };
  for (std::size_t item = 0; item < walks.size(); ++item) offer(item);
  std::vector<std::size_t> taken;
  while (bytes > budget_bytes) {
    const std::size_t item = steps.top().item;
    steps.pop();
    Walk& walk = walks[item];
    bytes -= walk.vertices[walk.at]->bytes - walk.vertices[walk.at + 1]->bytes;
    ++walk.at;
    taken.push_back(item);
    offer(item);
  }
  // The last steps gave up most per byte: they are taken back first, each item's own in reverse.
  for (auto item = taken.rbegin(); item != taken.rend(); ++item) {
    Walk& walk = walks[*item];
    const std::uint64_t more = walk.vertices[walk.at - 1]->bytes - walk.vertices[walk.at]->bytes;
    if (bytes + more > budget_bytes) continue;
    bytes += more;
    --walk.at;
  }

  Allocation allocation{.chosen = {}, .bytes = bytes, .utility = 0};
  for (const Walk& walk : walks) {
    allocation.chosen.push_back(walk.vertices[walk.at]->candidate);
    allocation.utility += walk.vertices[walk.at]->utility;
  }
  return allocation;
}

}  // namespace shale
