// Which removal is tried when, and what those that failed count.
#include "extents/removals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace shale::testing {
namespace {

Removal removal_of(std::uint64_t name) { return {.owner = {{name, name}, name}, .bytes = 10 * name}; }

class RemovalsTest : public ::testing::Test {
 protected:
  void owe(std::uint64_t name, double now_s) {
    removals_.begin(removal_of(name));
    removals_.owe(removal_of(name), now_s, "why");
  }
  // The name of the one that is tried again; 0: none.
  std::uint64_t again(double now_s) {
    const auto removal = removals_.begin_again(now_s);
    return removal ? removal->owner.name.high : 0;
  }

  Removals removals_;
};

TEST_F(RemovalsTest, WhatIsTriedIsCountedUntilItIsGone) {
  removals_.begin(removal_of(1));
  EXPECT_TRUE(removals_.contains({1, 1}));
  EXPECT_TRUE(removals_.tries({1, 1}));
  EXPECT_EQ(removals_.bytes(), 10u);
  EXPECT_EQ(removals_.owed(), 0u);
  EXPECT_EQ(again(1e9), 0u) << "it is owed by nobody";
  removals_.end({1, 1});
  EXPECT_FALSE(removals_.contains({1, 1}));
  EXPECT_EQ(removals_.bytes(), 0u);
}

TEST_F(RemovalsTest, OneIsTriedAgainAfterPausesThatDouble) {
  for (const std::uint64_t name : {1, 2, 3}) owe(name, 0);
  double now_s = 0, pause_s = Removals::kPauseS;
  for (const std::uint64_t name : {1, 2, 3, 1, 2, 3}) {
    EXPECT_TRUE(removals_.rests({9, 9}, now_s + 0.9 * pause_s));
    EXPECT_EQ(again(now_s + 0.9 * pause_s), 0u);
    now_s += pause_s;
    EXPECT_EQ(again(now_s), name);
    EXPECT_EQ(again(now_s), 0u) << "one is being tried";
    EXPECT_TRUE(removals_.tries({name, name}));
    EXPECT_FALSE(removals_.rests({name, name}, now_s));
    EXPECT_EQ(removals_.owed(), 3u);
    EXPECT_EQ(removals_.bytes(), 60u);
    removals_.owe(removal_of(name), now_s, "again");
    pause_s = std::min(2 * pause_s, Removals::kPauseMaxS);
  }
  EXPECT_EQ(removals_.why(), "again");
}

TEST_F(RemovalsTest, OnceOneIsGoneTheOthersFollowWithoutAPause) {
  for (const std::uint64_t name : {1, 2, 3}) owe(name, 0);
  for (const std::uint64_t name : {1, 2, 3}) {
    EXPECT_EQ(again(Removals::kPauseS), name);
    removals_.end({name, name});
    EXPECT_FALSE(removals_.rests({9, 9}, Removals::kPauseS)) << "the tier works";
  }
  EXPECT_EQ(removals_.owed(), 0u);
  EXPECT_EQ(removals_.bytes(), 0u);
}

TEST_F(RemovalsTest, WhatIsWantedAgainIsNotOwed) {
  for (const std::uint64_t name : {1, 2}) owe(name, 0);
  removals_.forget({1, 1});
  EXPECT_FALSE(removals_.contains({1, 1}));
  EXPECT_EQ(removals_.bytes(), 20u);
  EXPECT_EQ(again(Removals::kPauseS), 2u);
  removals_.forget({2, 2});
  EXPECT_TRUE(removals_.tries({2, 2})) << "until that try has ended";
  removals_.end({2, 2});
  EXPECT_EQ(again(1e9), 0u);
  owe(3, 1000);
  EXPECT_EQ(again(1000 + Removals::kPauseS), 3u) << "another failure begins with the first pause";
}

}  // namespace
}  // namespace shale::testing
