#include <gtest/gtest.h>

#include "placement/placement.h"

namespace shale {
namespace {

Candidate worth(double quality, double ttft_s) { return {.quality = quality, .ttft_s = ttft_s}; }

TEST(Utility, WeighsQualityAgainstDelay) {
  EXPECT_DOUBLE_EQ(utility(1, 1, worth(0.65, 0.05)), 0.60);
  EXPECT_DOUBLE_EQ(utility(1, 1, worth(0.67, 0.05)), 0.62);
  EXPECT_DOUBLE_EQ(utility(1, 3, worth(0.65, 0.05)), 1.80);
}

TEST(Utility, BetterAnswerWinsExactlyAboveItsPrice) {
  const auto better_wins = [](double alpha) {
    return utility(alpha, 1, worth(0.92, 0.24)) > utility(alpha, 1, worth(0.82, 0.20));
  };
  EXPECT_FALSE(better_wins(0.399));
  EXPECT_TRUE(better_wins(0.401));
}

TEST(Frequency, StartsWithTheFirstAccessAndHalvesPerHalfLife) {
  Frequency frequency(600);
  EXPECT_EQ(frequency.value(0), 0);
  frequency.access(100);
  EXPECT_DOUBLE_EQ(frequency.value(100), 1);
  EXPECT_DOUBLE_EQ(frequency.value(700), 0.5);
  frequency.access(700);
  EXPECT_DOUBLE_EQ(frequency.value(1300), 0.75);
  EXPECT_EQ(frequency.count(), 2u);
  EXPECT_EQ(frequency.last_access_s(), 700);
}

TEST(Frequency, ClockThatGoesBackDoesNotDecayOrGrow) {
  Frequency frequency(600);
  frequency.access(100);
  EXPECT_DOUBLE_EQ(frequency.value(-500), 1);
  frequency.access(50);
  EXPECT_EQ(frequency.last_access_s(), 100);
}

TEST(Frequency, PlainCountNeverDecays) {
  Frequency frequency(600, true);
  frequency.access(0);
  frequency.access(1);
  EXPECT_EQ(frequency.value(1e9), 2);
}

TEST(Frequency, ResumesWhereItWas) {
  Frequency first(600);
  first.access(0);
  first.access(300);
  Frequency second(600);
  second.resume(first.value(first.last_access_s()), first.last_access_s(), first.count());
  EXPECT_DOUBLE_EQ(second.value(1000), first.value(1000));
  EXPECT_EQ(second.count(), 2u);
}

}  // namespace
}  // namespace shale
