#include "model/thread_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace shale {
namespace {

// Threads beside `neighbours` busy programs: as many of those that compute wait half of the time as there are too many.
std::vector<double> waits(std::uint32_t active, std::uint32_t cores, std::uint32_t neighbours, double seconds) {
  std::vector<double> waited(active, 0.01 * seconds);
  const std::uint32_t wanted = active + neighbours, too_many = wanted > cores ? wanted - cores : 0;
  for (std::uint32_t i = 0; i < std::min(too_many, active); ++i) waited[i] = seconds / 2;
  return waited;
}

TEST(ThreadShareTest, UsesAllThreadsBesideNobody) {
  ThreadShare share(8);
  for (int i = 0; i < 100; ++i) {
    share.observe(waits(share.active(), 8, 0, 0.05), 0, 0.05, 0.05 * i);
    EXPECT_EQ(share.active(), 8u);
  }
}

TEST(ThreadShareTest, LeavesNeighboursTheirCores) {
  for (const auto& [neighbours, expected] : {std::pair{1u, 7u}, {3u, 5u}, {8u, 1u}, {20u, 1u}}) {
    ThreadShare share(8);
    share.observe(waits(8, 8, neighbours, 0.05), 0, 0.05, 0);
    EXPECT_EQ(share.active(), expected) << neighbours;
  }
}

// All are tried for a moment, less and less often.
TEST(ThreadShareTest, TriesSeldomWhileTheNeighbourStays) {
  ThreadShare share(2);
  int tried = 0;
  const double step_s = 0.05, end_s = 60;
  for (double now_s = 0; now_s < end_s; now_s += step_s) {
    tried += share.active() == 2;
    share.observe(waits(share.active(), 2, 1, step_s), 0, step_s, now_s);
  }
  EXPECT_GE(tried, 5);
  EXPECT_LE(tried * step_s, 0.02 * end_s);
}

// A tier's thread that writes for 15 ms now and then costs those, and no more.
TEST(ThreadShareTest, BearsShortVisits) {
  ThreadShare share(2);
  for (int i = 0; i < 200; ++i) {
    const double waited[] = {0, i % 4 == 0 ? 0.015 : 0.001};
    share.observe(waited, 0, 0.05, 0.05 * i);
    EXPECT_EQ(share.active(), 2u);
  }
}

// Of two busy cores a tier's threads take a half each for a while.
TEST(ThreadShareTest, BearsTheProcessesOwnThreads) {
  ThreadShare share(2);
  for (int i = 0; i < 200; ++i) {
    const double waited[] = {0.025, 0.026};
    share.observe(waited, 0.05, 0.05, 0.05 * i);
    EXPECT_EQ(share.active(), 2u);
  }
  share.observe(waits(2, 2, 1, 0.05), 0, 0.05, 11);
  EXPECT_EQ(share.active(), 1u);
}

TEST(ThreadShareTest, NoticesANeighbourThatVisitsNowThisThreadAndNowThat) {
  ThreadShare share(2);
  for (int i = 0; i < 4; ++i) {
    const double waited[] = {0.012, 0.013};
    share.observe(waited, 0, 0.05, 0.05 * i);
  }
  EXPECT_EQ(share.active(), 1u);
}

TEST(ThreadShareTest, ANeighbourThatIsThereIsNoticedAgainAtOnce) {
  ThreadShare share(8);
  share.observe(waits(8, 8, 1, 0.05), 0, 0.05, 0);
  double now_s = 0;
  while (share.active() == 7 && now_s < 10) share.observe(waits(7, 8, 1, 0.05), 0, 0.05, now_s += 0.05);
  ASSERT_EQ(share.active(), 8u) << "tried";
  const double waited[] = {0, 0.01};
  share.observe(waited, 0, 0.05, now_s);
  EXPECT_EQ(share.active(), 7u);
}

// Two that lose 30 % of the time do more than one.
TEST(ThreadShareTest, BearsWhatCostsLessThanAThread) {
  ThreadShare two(2), eight(8);
  for (int i = 0; i < 200; ++i) {
    const double waited[] = {0.01, 0.005};
    two.observe(waited, 0, 0.05, 0.05 * i);
    EXPECT_EQ(two.active(), 2u);
    eight.observe(waited, 0, 0.05, 0.05 * i);
    EXPECT_EQ(i == 1 ? eight.active() : 7u, 7u) << "of eight, one is worth less";
  }
}

// As of a share that has met a neighbour for a minute.
ThreadShare long_beside_one(std::uint32_t threads, double& now_s) {
  ThreadShare share(threads);
  for (; now_s < 60 || share.active() == threads; now_s += 0.05) {
    share.observe(waits(share.active(), threads, 1, 0.05), 0, 0.05, now_s);
  }
  return share;
}

TEST(ThreadShareTest, TakesThemBackAtOnceWhereTheirCoresAreIdle) {
  double now_s = 0;
  ThreadShare share = long_beside_one(8, now_s);
  ASSERT_EQ(share.active(), 7u);
  now_s += 0.5;
  const double idle_s = now_s;
  for (; share.active() == 7 && now_s < 100; now_s += 0.05) {
    share.observe(waits(7, 8, 0, 0.05), 0, 0.05, now_s, 0.9);
  }
  EXPECT_LT(now_s - idle_s, 0.1);
  for (int i = 0; i < 20; ++i) {
    share.observe(waits(share.active(), 8, 0, 0.05), 0, 0.05, now_s += 0.05);
    EXPECT_EQ(share.active(), 8u);
  }
}

TEST(ThreadShareTest, LeavesTheCoresOfANeighbourThatRestsNowAndThen) {
  double now_s = 0;
  ThreadShare share = long_beside_one(2, now_s);
  int tried = 0;
  for (const double end_s = now_s + 60; now_s < end_s; now_s += 0.05) {
    tried += share.active() == 2;
    share.observe(waits(share.active(), 2, 1, 0.05), 0, 0.05, now_s, 0.5);
  }
  EXPECT_LE(tried, 8);
}

// A control group's limit keeps threads waiting beside idle cores.
TEST(ThreadShareTest, DoesNotBelieveIdleCoresThatHelpNothing) {
  double now_s = 0;
  ThreadShare share = long_beside_one(2, now_s);
  int tried = 0;
  const double step_s = 0.05, seconds = 60;
  for (const double end_s = now_s + seconds; now_s < end_s; now_s += step_s) {
    tried += share.active() == 2;
    share.observe(waits(share.active(), 2, 1, step_s), 0, step_s, now_s, 1);
  }
  EXPECT_LE(tried * step_s, 0.02 * seconds);
}

TEST(ThreadShareTest, TakesThemBackSoonAfterAShortVisit) {
  ThreadShare share(2);
  share.observe(waits(2, 2, 1, 0.05), 0, 0.05, 0);
  EXPECT_EQ(share.active(), 1u);
  double now_s = 0;
  while (share.active() == 1 && now_s < 10) share.observe(waits(1, 2, 0, 0.05), 0, 0.05, now_s += 0.05);
  EXPECT_LT(now_s, 1);
  for (int i = 0; i < 20; ++i) {
    share.observe(waits(share.active(), 2, 0, 0.05), 0, 0.05, now_s += 0.05);
    EXPECT_EQ(share.active(), 2u);
  }
}

}  // namespace
}  // namespace shale
