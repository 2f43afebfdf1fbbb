#include "paging/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace shale {
namespace {

// A table of `tokens` in full pages, of which those that `dropped` names are holes.
template <class Dropped>
std::vector<PageSlot> table_of(std::uint32_t tokens, std::uint32_t block_size, const Dropped& dropped) {
  std::vector<PageSlot> table;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    if (token % block_size == 0) table.push_back({token / block_size, 0, 0});
    table.back().holes |= std::uint64_t{dropped(token)} << token % block_size;
    ++table.back().count;
  }
  return table;
}

std::vector<std::uint8_t> all_movable(const std::vector<PageSlot>& table) {
  return std::vector<std::uint8_t>(table.size(), 1);
}

// Every tenth token of 16,000 is kept: no page is free by itself, nine in ten are once packed.
TEST(Compaction, RepackFreesWhatScatteredSurvivorsHold) {
  const auto table = table_of(16000, 16, [](std::uint32_t token) { return token % 10 != 0; });
  ASSERT_EQ(std::ranges::count(table, 0u, &PageSlot::tokens), 0);
  EXPECT_EQ(plan_repack(table, all_movable(table), 16).pages_freed, 900);
}

TEST(Compaction, OneSurvivorAPageFreesNothingBeforeIt) {
  const auto table = table_of(1600, 16, [](std::uint32_t token) { return token % 16 != 5; });
  EXPECT_EQ(std::ranges::count(table, 0u, &PageSlot::tokens), 0);
  EXPECT_EQ(plan_repack(table, all_movable(table), 16).pages_freed, 93);  // 100 survivors need 7 of 100 pages
}

// 24 tokens in pages of 4; 2, 9, 13 and 21 are dropped; the newest round starts at 20.
TEST(Compaction, HoleFillingCopiesTheNewestAlone) {
  const auto table = table_of(24, 4, [](std::uint32_t t) { return t == 2 || t == 9 || t == 13 || t == 21; });
  const CompactionPlan repack = plan_repack(table, all_movable(table), 4);
  EXPECT_EQ(repack.pages_freed, 1);
  EXPECT_EQ(repack.slots_copied(), 18);
  const CompactionPlan fill = plan_hole_fill(table, all_movable(table), 4, 20);
  EXPECT_EQ(fill.pages_freed, 1);
  EXPECT_EQ(fill.slots_copied(), 3);
}

// A page that lost its last tokens counts its slots without them.
TEST(Compaction, HoleFillingFillsAPagesEnd) {
  auto table = table_of(24, 4, [](std::uint32_t t) { return t == 9; });
  table[1].count = 2;
  const CompactionPlan fill = plan_hole_fill(table, all_movable(table), 4, 20);
  ASSERT_EQ(fill.copies.size(), 3);
  EXPECT_EQ(fill.copies[0].to, 6);
  EXPECT_EQ(fill.copies[1].to, 7);
  EXPECT_EQ(fill.copies[2].to, 9);
  EXPECT_EQ(fill.live, (std::vector<std::uint64_t>{0b1111, 0b1111, 0b1111, 0b1111, 0b1111, 0b0001}));
}

TEST(Compaction, SurvivorsBeyondTheHolesStay) {
  const auto table = table_of(24, 4, [](std::uint32_t t) { return t == 2; });
  const CompactionPlan fill = plan_hole_fill(table, all_movable(table), 4, 20);
  ASSERT_EQ(fill.copies.size(), 1);
  EXPECT_EQ(fill.copies[0].from, 23);
  EXPECT_EQ(fill.copies[0].to, 2);
  EXPECT_EQ(fill.live.back(), 0b0111u);
}

TEST(Compaction, PagesThatOthersReadAreLeftAlone) {
  auto table = table_of(12, 4, [](std::uint32_t t) { return t % 2 == 0; });
  std::vector<std::uint8_t> movable = {1, 0, 1};
  const CompactionPlan plan = plan_repack(table, movable, 4);
  EXPECT_EQ(plan.live, (std::vector<std::uint64_t>{0b1111, 0b1010, 0}));
  EXPECT_EQ(plan.pages_freed, 1);
  movable = {0, 0, 1};
  EXPECT_TRUE(plan_hole_fill(table, movable, 4, 8).copies.empty());
}

// Carries a plan out on plain numbers: every survivor is there once, none was overwritten before it was read.
TEST(Compaction, PlansLoseNothing) {
  std::mt19937 engine(11);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t block_size = std::vector{8u, 16u, 64u}[random() % 3];
    std::vector<PageSlot> table(1 + random() % 12);
    std::vector<std::uint8_t> movable(table.size());
    std::vector<int> slots(table.size() * block_size, -1);
    std::vector<int> survivors;
    for (std::size_t p = 0; p < table.size(); ++p) {
      table[p].count = 1 + random() % block_size;
      movable[p] = random() % 4 != 0;
      for (std::uint32_t s = 0; s < table[p].count; ++s) {
        if (random() % 3 == 0) {
          table[p].holes |= std::uint64_t{1} << s;
        } else {
          slots[p * block_size + s] = static_cast<int>(p * block_size + s);
          survivors.push_back(slots[p * block_size + s]);
        }
      }
    }
    const auto newest = static_cast<std::uint32_t>(random() % slots.size());
    const bool repack = random() % 2 == 0;
    const CompactionPlan plan =
        repack ? plan_repack(table, movable, block_size) : plan_hole_fill(table, movable, block_size, newest);
    const std::vector<int> before = slots;
    for (const SlotCopy& copy : plan.copies) {
      for (std::uint32_t i = 0; i < copy.count; ++i) slots[copy.to + i] = slots[copy.from + i];
    }
    std::vector<int> after;
    std::uint32_t free = 0;
    for (std::size_t p = 0; p < table.size(); ++p) {
      free += plan.live[p] == 0;
      for (std::uint32_t s = 0; s < block_size; ++s) {
        if (plan.live[p] >> s & 1) after.push_back(slots[p * block_size + s]);
        if (!movable[p]) {
          EXPECT_EQ(slots[p * block_size + s], before[p * block_size + s]);
        }
      }
    }
    EXPECT_EQ(free, plan.pages_freed);
    if (repack && std::ranges::all_of(movable, [](auto each) { return each == 1; })) {
      EXPECT_EQ(after, survivors);  // in their order
    }
    std::ranges::sort(after);
    ASSERT_EQ(after, survivors);
  }
}

TEST(Compaction, IsCalledByName) {
  for (const Compaction each : {Compaction::kNone, Compaction::kRepack, Compaction::kHoleFill}) {
    EXPECT_EQ(*parse_compaction(to_string(each)), each);
  }
  EXPECT_EQ(parse_compaction("defragment").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
