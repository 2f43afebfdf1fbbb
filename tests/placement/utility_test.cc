#include <gtest/gtest.h>

#include "placement/instances.h"
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

// Two tiers, the lowest with room for `room` bytes; entries hold 10 bytes in memory and 100 as a full copy.
Problem with_copies(std::uint64_t room, const std::vector<double>& frequencies) {
  Problem problem;
  problem.tiers = {{1000}, {room}};
  for (const double frequency : frequencies) {
    PlacedEntry entry;
    entry.frequency = frequency;
    entry.candidates = {
        {1, 0.1, 0, 10, 0.9, 0.1}, {kFullMethod, 1, 1, 100, 1, 0.5}, {kFullMethod, 1, kDropped, 0, 1, 2}};
    entry.full_copy_bytes = 100;
    problem.entries.push_back(entry);
  }
  return problem;
}

TEST(FullCopies, OfTheMostFrequentFillTheRoomThatThePlanLeaves) {
  const Problem problem = with_copies(250, {1, 3, 2});
  EXPECT_EQ(full_copies(problem, testing::placement_of(problem)), (std::vector<std::size_t>{1, 2}));
  const std::vector<std::uint32_t> with_one_below = {0, 0, 1};
  EXPECT_EQ(full_copies(problem, with_one_below), (std::vector<std::size_t>{1}));
  const std::vector<std::uint32_t> with_one_dropped = {0, 2, 0};
  EXPECT_EQ(full_copies(problem, with_one_dropped), (std::vector<std::size_t>{0, 2}));
}

TEST(FullCopies, NeedRoomATierAndAWish) {
  Problem problem = with_copies(99, {1});
  EXPECT_TRUE(full_copies(problem, testing::placement_of(problem)).empty());
  problem = with_copies(~0ull, {1, 1});
  problem.entries[0].full_copy_bytes = 0;
  EXPECT_EQ(full_copies(problem, testing::placement_of(problem)), (std::vector<std::size_t>{1}));
  EXPECT_TRUE(full_copies(Problem{}, {}).empty());
}

}  // namespace
}  // namespace shale
