#include "placement/hull.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace shale {
namespace {

std::vector<std::uint32_t> walk(const std::vector<Point>& points, Point at) {
  std::vector<std::uint32_t> vertices;
  while (const Point* next = next_vertex(points, at)) {
    at = *next;
    vertices.push_back(at.candidate);
  }
  return vertices;
}

TEST(Hull, WalkSkipsWhatAMixtureBeats) {
  // From (100, 10): 3 lies under the line from 0 to 2.
  const std::vector<Point> points = {{100, 10, 0}, {0, 0, 1}, {50, 9, 2}, {75, 9.2, 3}, {25, 4, 4}};
  EXPECT_EQ(walk(points, points[0]), (std::vector<std::uint32_t>{2, 1}));
}

TEST(Hull, GainsComeFirst) {
  const std::vector<Point> points = {{100, 10, 0}, {60, 12, 1}, {0, 1, 2}};
  EXPECT_EQ(walk(points, points[0]), (std::vector<std::uint32_t>{1, 2}));
}

TEST(Hull, OfEqualDropsTheOneThatFreesLeast) {
  const std::vector<Point> points = {{0, 0, 0}, {50, 5, 1}, {75, 7.5, 2}};
  EXPECT_EQ(walk(points, {100, 10, 9}), (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(Hull, NothingSmallerEndsIt) {
  const std::vector<Point> points = {{10, 1, 0}, {10, 2, 1}, {20, 3, 2}};
  EXPECT_EQ(next_vertex(points, points[0]), nullptr);
  EXPECT_EQ(next_vertex({}, points[0]), nullptr);
}

TEST(Hull, RandomWalksAreConcaveAndCoverEveryPoint) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Point> points;
    for (std::uint32_t i = 0; i < 12; ++i) points.push_back({random() % 1000, static_cast<double>(random() % 1000), i});
    const Point start{1000, 500, 99};
    Point at = start;
    double last_drop = -1e300;
    while (const Point* next = next_vertex(points, at)) {
      const double drop = drop_per_byte(at, *next);
      EXPECT_GE(drop, last_drop - 1e-12);
      for (const Point& point : points) {  // none lies above the line from `at` to `next`
        if (point.bytes >= at.bytes || point.bytes < next->bytes) continue;
        const double line = at.utility - drop * static_cast<double>(at.bytes - point.bytes);
        EXPECT_LE(point.utility, line + 1e-9);
      }
      last_drop = drop;
      at = *next;
    }
    for (const Point& point : points) EXPECT_GE(point.bytes, at.bytes);
  }
}

}  // namespace
}  // namespace shale
