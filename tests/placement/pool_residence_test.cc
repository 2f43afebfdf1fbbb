// What the pool holds, as it counts for the tiers below.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "placement/placement_state_fixture.h"

namespace shale::testing {
namespace {

TEST_F(PlacementStateTest, MemoryHoldsWhatThePoolDoesNot) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot often = s.add(whole(100, 3), 0), rare = s.add(whole(100, 1), 0);
  s.place(often);
  s.place(rare);
  s.settle();
  EXPECT_EQ(s.placed(often).tier, 0u);
  s.in_pool(often, 1, 0);
  s.settle();
  EXPECT_EQ(s.placed(rare).tier, 0u);
  EXPECT_EQ(s.placed(often).tier, 1u) << "kept, for the pool may lose it";
  s.in_pool(often, 0, 0);
  s.settle();
  EXPECT_EQ(s.placed(often).tier, 0u);
}

// Of the most recent cached prefixes the pool has the first, so that with lru they would take the memory in vain.
TEST_F(PlacementStateTest, WhatThePoolHoldsIsNotPromotedUntilItIsEvicted) {
  for (const char* planner : {"lru", "lfu", "shale"}) {
    SCOPED_TRACE(planner);
    const auto chosen = make_planner(planner).value();
    PlacementState s(*chosen, {}, {{100}, {kAny}}, told_);
    const PlacementSlot below = s.add(whole(100), 0), above = s.add(whole(100), 0);
    s.place(below);
    s.place(above);
    while (s.settle()) {
    }
    ASSERT_NE(s.placed(below).tier, s.placed(above).tier);
    const PlacementSlot lower = s.placed(below).tier == 1 ? below : above;
    s.in_pool(lower, 1, 1);
    for (int i = 0; i < 5; ++i) s.access(lower, 2 + i);
    while (s.settle()) {
    }
    EXPECT_EQ(s.placed(lower).tier, 1u);
    s.in_pool(lower, 0, 10);
    while (s.settle()) {
    }
    EXPECT_EQ(s.placed(lower).tier, 0u);
  }
}

TEST_F(PlacementStateTest, ThePoolCountsAsAccessesThatMissIt) {
  PlacementState s = state({{100}}, {.half_life_s = 10, .pool_certainty = 0.8});
  const PlacementSlot slot = s.add(whole(100, 4), 0);
  s.in_pool(slot, 0.5, 0);
  EXPECT_DOUBLE_EQ(s.problem(0).prefixes[0].frequency, 4 * (1 - 0.8 * 0.5));
  s.access(slot, 10);
  EXPECT_DOUBLE_EQ(s.problem(20).prefixes[0].frequency, (4.0 / 4 + 1.0 / 2) * (1 - 0.8 * 0.5));
  EXPECT_EQ(s.prefix(slot).accesses, 2u);
  EXPECT_EQ(s.prefix(slot).last_access_s, 10);
}

// Of two cached prefixes in the pool, the one that is asked for more often than the pool forgets is answered by it.
TEST_F(PlacementStateTest, WhatThePoolForgetsBeforeItIsAskedForAgainCountsAlmostInFull) {
  PlacementState s = state({{100}, {kAny}}, {.half_life_s = 1000, .pool_certainty = 1});
  const PlacementSlot often = s.add(whole(100, 0), 0), rare = s.add(whole(100, 0), 0), gone = s.add(whole(100, 0), 0);
  for (int second = 1; second <= 1000; ++second) {
    s.access(often, second);
    if (second % 100 == 0) s.access(rare, second);
  }
  s.in_pool(often, 1, 1000);
  s.in_pool(rare, 1, 1000);
  const auto missed = [&](PlacementSlot slot) {
    const double all = slot == often ? 1000 : 10;
    return s.problem(1000).prefixes[slot].frequency / all * 1000 * std::numbers::ln2 / 500;
  };
  EXPECT_NEAR(missed(rare), 0, 1e-9) << "nothing was ever evicted";
  s.access(gone, 1000);
  s.in_pool(gone, 1, 1000);
  s.in_pool(gone, 0, 1010);
  const double decayed = std::exp2(-10.0 / 1000);
  EXPECT_NEAR(missed(often), std::exp(-10.0 * decayed), 0.05);
  EXPECT_NEAR(missed(rare), std::exp(-10.0 / 100), 0.05);
}

}  // namespace
}  // namespace shale::testing
