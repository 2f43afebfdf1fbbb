#include "tier/speed_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace shale {
namespace {

constexpr double kLatency = 200e-6;
constexpr double kBandwidth = 1.5e9;

class Feed {
 public:
  void one(double bytes, double factor = 1) {
    const double start_s = now_s;
    fit.started();
    now_s += (kLatency + bytes / kBandwidth) * factor;
    fit.finished(start_s, now_s, static_cast<std::uint64_t>(bytes));
    now_s += 0.01;  // idle between periods belongs to none
  }
  SpeedFit fit{1e-3, 1e8};
  double now_s = 5;
};

TEST(SpeedFitTest, GuessesUntilThereAreSamples) {
  const SpeedFit fit(1e-3, 1e8);
  EXPECT_EQ(fit.fit(0).samples, 0u);
  EXPECT_EQ(fit.fit(0).latency_s, 1e-3);
  EXPECT_EQ(fit.fit(0).bytes_per_s, 1e8);
}

TEST(SpeedFitTest, TellsLatencyFromBandwidth) {
  Feed feed;
  for (int i = 0; i < 10; ++i) {
    feed.one(262144);
    feed.one(8 << 20);
  }
  EXPECT_NEAR(feed.fit.fit(feed.now_s).latency_s, kLatency, 1e-9);
  EXPECT_NEAR(feed.fit.fit(feed.now_s).bytes_per_s, kBandwidth, 1);
  EXPECT_EQ(feed.fit.fit(feed.now_s).samples, 20u);
}

TEST(SpeedFitTest, StandsAFifthOfOutliers) {
  Feed feed;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const double noise = 1 + 0.02 * (static_cast<double>(random() % 100) / 100 - 0.5);
    feed.one(i % 2 ? 262144 : 6 << 20, random() % 5 == 0 ? 20 : noise);
  }
  EXPECT_NEAR(feed.fit.fit(feed.now_s).bytes_per_s, kBandwidth, 0.1 * kBandwidth);
  EXPECT_NEAR(feed.fit.fit(feed.now_s).latency_s, kLatency, 0.5 * kLatency);
}

TEST(SpeedFitTest, ManyLargeOnesDoNotForgetTheSmall) {
  Feed feed;
  for (int i = 0; i < 5; ++i) feed.one(65536);
  for (int i = 0; i < 500; ++i) feed.one(4 << 20);
  EXPECT_NEAR(feed.fit.fit(feed.now_s).latency_s, kLatency, 1e-9);
}

TEST(SpeedFitTest, FollowsADeviceThatBecomesSlower) {
  Feed feed;
  for (int i = 0; i < 100; ++i) feed.one(i % 2 ? 262144 : 8 << 20);
  for (int i = 0; i < 100; ++i) feed.one(i % 2 ? 262144 : 8 << 20, 3);
  EXPECT_NEAR(feed.fit.fit(feed.now_s).bytes_per_s, kBandwidth / 3, 1);
}

TEST(SpeedFitTest, OneSizeLeavesTheLatencyAtItsGuessOrBelow) {
  SpeedFit fit(1e-4, 1e8);
  for (int i = 0; i < 4; ++i) {
    fit.started();
    fit.finished(i, i + 0.0011, 1000000);
  }
  EXPECT_NEAR(fit.fit(0).latency_s, 1e-4, 1e-9);
  EXPECT_NEAR(fit.fit(0).bytes_per_s, 1e9, 1);
}

// One slow manifest on a busy machine must not make megabytes look slow.
TEST(SpeedFitTest, SmallPeriodsAloneLeaveTheBandwidthAtItsGuess) {
  SpeedFit fit(1e-4, 1e9);
  fit.started();
  fit.finished(0, 0.005, 8192);
  fit.started();
  fit.finished(1, 1.001, 20000);
  EXPECT_EQ(fit.fit(0).bytes_per_s, 1e9);
  EXPECT_NEAR(fit.fit(0).latency_s, 0.005, 1e-4);
  EXPECT_FALSE(fit.fit(0).tells_bandwidth);
  fit.started();
  fit.finished(2, 2.1, 1000000);
  EXPECT_TRUE(fit.fit(0).tells_bandwidth);
}

TEST(SpeedFitTest, WhatTakesNoTimeTellsNoBandwidth) {
  SpeedFit fit(1e-4, 1e9);
  fit.started();
  fit.finished(0, 0, 1000000);
  EXPECT_EQ(fit.fit(0).bytes_per_s, 1e9);
  EXPECT_FALSE(fit.fit(0).tells_bandwidth);
}

TEST(SpeedFitTest, OperationsTogetherAreOneSampleOfTheirSum) {
  SpeedFit fit(0, 1e8);
  for (int i = 0; i < 10; ++i) fit.started();
  for (int i = 1; i <= 10; ++i) fit.finished(1.0, 1.0 + 0.01 * i, 10000000);
  EXPECT_EQ(fit.fit(0).samples, 1u);
  EXPECT_NEAR(fit.fit(0).bytes_per_s, 1e9, 1e3);
}

// Far away, with much of the pipe idle though something is always in flight.
TEST(SpeedFitTest, LatenciesThatOverlapAreNoBusyPipe) {
  SpeedFit fit(1e-2, 1e9);
  constexpr double kFar = 0.1, kRate = 1e8;
  for (int i = 0; i < 20; ++i) {  // learns it alone
    fit.started();
    const double seconds = kFar + (i % 2 ? 1e7 : 1e6) / kRate;
    fit.finished(i, i + seconds, i % 2 ? 10000000 : 1000000);
  }
  for (int i = 0; i < 40; ++i) fit.started();
  for (int i = 0; i < 40; ++i) fit.finished(100 + 0.09 * i, 100 + 0.09 * i + kFar + 1e6 / kRate, 1000000);
  EXPECT_EQ(fit.fit(0).samples, 60u) << "each found the pipe free";
  EXPECT_EQ(fit.waited_s(), 0);
  EXPECT_NEAR(fit.fit(0).latency_s, kFar, 1e-3 * kFar);
  EXPECT_NEAR(fit.fit(0).bytes_per_s, kRate, 1e-2 * kRate);
}

TEST(SpeedFitTest, TheOrderOfReportsDoesNotMatter) {
  SpeedFit in_order(0.01, 1e8), reversed(0.01, 1e8);
  std::vector<std::pair<double, double>> operations;
  double free_s = 0;
  for (int i = 0; i < 60; ++i) {
    const double start_s = i * 0.02 + (i / 10) * 1.0;
    free_s = std::max(free_s, start_s) + 0.03;
    operations.emplace_back(start_s, free_s + 0.005);
    in_order.started();
    reversed.started();
  }
  for (const auto& [start_s, end_s] : operations) in_order.finished(start_s, end_s, 3000000);
  std::ranges::reverse(operations);
  for (const auto& [start_s, end_s] : operations) reversed.finished(start_s, end_s, 3000000);
  EXPECT_EQ(in_order.fit(0).samples, reversed.fit(0).samples);
  EXPECT_EQ(in_order.fit(0).bytes_per_s, reversed.fit(0).bytes_per_s);
  EXPECT_EQ(in_order.waited_s(), reversed.waited_s());
  EXPECT_GT(in_order.waited_s(), 0);
  EXPECT_NEAR(in_order.fit(0).bytes_per_s, 1e8, 2e6);
}

TEST(SpeedFitTest, APeriodThatNeverEndsIsCut) {
  SpeedFit fit(0, 1e8);
  fit.started();  // and hangs
  for (int i = 0; i < 200; ++i) {
    fit.started();
    fit.finished(0.1 * i, 0.1 * (i + 1), 50000000);
  }
  EXPECT_GE(fit.fit(0).samples, 4u);
  EXPECT_NEAR(fit.fit(0).bytes_per_s, 5e8, 1e3);
}

TEST(SpeedFitTest, FailuresTeachNothing) {
  SpeedFit fit(1e-3, 1e8);
  fit.started();
  fit.finished(0, 9, 0);
  EXPECT_EQ(fit.fit(0).samples, 0u);
}

// Whoever is slow is not read while others are sooner: nothing else would say that it is slow no more.
TEST(SpeedFitTest, WhatWasMeasuredCountsForHalfAnHour) {
  Feed feed;
  for (int i = 0; i < 64; ++i) feed.one(i % 2 ? 262144 : 8 << 20, 100);
  ASSERT_NEAR(feed.fit.fit(feed.now_s).latency_s, 100 * kLatency, 1e-6);
  feed.now_s += 1700;
  EXPECT_NEAR(feed.fit.fit(feed.now_s).latency_s, 100 * kLatency, 1e-6);
  feed.now_s += 200;
  EXPECT_EQ(feed.fit.fit(feed.now_s).latency_s, 1e-3);
  EXPECT_EQ(feed.fit.fit(feed.now_s).bytes_per_s, 1e8);
  EXPECT_EQ(feed.fit.fit(feed.now_s).samples, 0u);
  feed.one(65536);
  EXPECT_LT(feed.fit.fit(feed.now_s).latency_s, 1e-3) << "the next one decides";
  EXPECT_GT(feed.fit.fit(feed.now_s).samples, 0u);
}

TEST(SpeedFitTest, WhatWasExpectedCountsAsLong) {
  SpeedFit fit(1e-3, 1e8);
  fit.expect(5, 1e6, 100);
  EXPECT_EQ(fit.fit(1000).latency_s, 5);
  EXPECT_EQ(fit.fit(2000).latency_s, 1e-3);
  EXPECT_EQ(fit.fit(2000).bytes_per_s, 1e8);
}

}  // namespace
}  // namespace shale
