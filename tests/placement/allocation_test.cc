#include "placement/allocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace shale {
namespace {

// By trying everything.
std::optional<double> best_utility(std::span<const std::vector<Point>> items, std::uint64_t budget) {
  if (items.empty()) return 0.0;
  std::optional<double> best;
  for (const Point& point : items.front()) {
    if (point.bytes > budget) continue;
    const auto rest = best_utility(items.subspan(1), budget - point.bytes);
    if (rest && (!best || point.utility + *rest > *best)) best = point.utility + *rest;
  }
  return best;
}

std::vector<std::vector<Point>> random_items(std::mt19937& random) {
  std::uniform_int_distribution<std::uint64_t> bytes(0, 40);
  std::uniform_real_distribution<double> utility(-1, 0);
  std::vector<std::vector<Point>> items(1 + random() % 5);
  for (auto& points : items) {
    points.resize(1 + random() % 5);
    for (std::uint32_t i = 0; i < points.size(); ++i) points[i] = {bytes(random), utility(random), i};
  }
  return items;
}

TEST(Allocation, IsWithinOneStepOfTheBestChoice) {
  std::mt19937 random(1);
  int exact = 0, solved = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto items = random_items(random);
    const std::uint64_t budget = random() % 160;
    const auto best = best_utility(items, budget);
    const auto allocation = allocate(items, budget);
    ASSERT_EQ(allocation.has_value(), best.has_value());
    if (!best) continue;
    ++solved;
    std::uint64_t bytes = 0;
    double utility = 0, largest_step = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      bytes += items[i][allocation->chosen[i]].bytes;
      utility += items[i][allocation->chosen[i]].utility;
      const auto [low, high] = std::ranges::minmax(items[i], {}, &Point::utility);
      largest_step = std::max(largest_step, high.utility - low.utility);
    }
    ASSERT_LE(bytes, budget);
    ASSERT_EQ(bytes, allocation->bytes);
    ASSERT_NEAR(utility, allocation->utility, 1e-12);
    ASSERT_LE(utility, *best + 1e-12);
    ASSERT_GE(utility, *best - largest_step - 1e-12);
    exact += utility > *best - 1e-12;
  }
  EXPECT_GT(exact, solved / 2);
}

TEST(Allocation, SpendsOnWhatGainsMostPerByte) {
  const std::vector<std::vector<Point>> items = {{{0, -1, 0}, {10, -0.5, 1}, {20, 0, 2}}, {{0, -4, 0}, {20, 0, 1}}};
  EXPECT_EQ(allocate(items, 20)->chosen, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(allocate(items, 30)->utility, -0.5);
  EXPECT_EQ(allocate(items, 1000)->bytes, 40u);
}

TEST(Allocation, SaysHowFewBytesWouldDo) {
  const std::vector<std::vector<Point>> items = {{{5, 0, 0}}, {{7, 0, 0}, {9, 1, 1}}};
  const auto allocation = allocate(items, 11);
  ASSERT_FALSE(allocation);
  EXPECT_EQ(allocation.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(allocation.error().message.find("12"), std::string::npos);
  EXPECT_EQ(allocate({}, 0)->bytes, 0u);
}

}  // namespace
}  // namespace shale
