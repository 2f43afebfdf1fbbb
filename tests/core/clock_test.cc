#include "core/clock.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Clock, TheRealOneSleepsAtLeastAsLongAsAsked) {
  const RealClock clock;
  const double begin = clock.now_s();
  clock.sleep_until_s(begin + 0.02);
  EXPECT_GE(clock.now_s(), begin + 0.02);
  clock.sleep_until_s(begin);  // in the past: returns
}

TEST(Clock, TheVirtualOneMovesOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.now_s(), 0);
  clock.advance(5);
  EXPECT_EQ(clock.now_s(), 5);
  clock.sleep_until_s(8);
  EXPECT_EQ(clock.now_s(), 8);
  clock.sleep_until_s(3);
  EXPECT_EQ(clock.now_s(), 8);
}

}  // namespace
}  // namespace shale
