// Emulated hardware, on a virtual clock: the arithmetic is exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "support/faulty_tier.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

constexpr std::size_t kBytes = 1 << 20;  // a multiple of the block, so that padding adds nothing

class ThrottleTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tier> make(const Throttle& throttle) {
    auto tier = make_memory_tier(kUnlimited, clock_);
    for (std::uint32_t part = 0; part < 8; ++part) {
      EXPECT_TRUE(tier->write(blob_id(1, part), blob_bytes(blob_id(1, part), kBytes))->wait());
    }
    return make_throttled_tier(std::move(tier), throttle, clock_);
  }
  VirtualClock clock_;
  const Throttle slow_ = {"slow", 0.010, 100.0 * kBytes, 50.0 * kBytes};
};

TEST_F(ThrottleTest, AReadTakesLatencyPlusTransfer) {
  const auto tier = make(slow_);
  const auto read = tier->read(blob_id(1, 0));
  EXPECT_FALSE(read->ready());
  clock_.advance(0.0199);
  EXPECT_FALSE(read->ready());
  clock_.advance(0.0002);
  EXPECT_TRUE(read->ready());
  EXPECT_TRUE(read->take());
  EXPECT_NEAR(read->seconds(), 0.020, 1e-9) << "not when it was asked for, but when it was due";
  EXPECT_NEAR(tier->stats().read_seconds, 0.020, 1e-9);
}

TEST_F(ThrottleTest, ReadsTogetherShareTheBandwidthAndOverlapTheirLatency) {
  const auto tier = make(slow_);
  std::vector<std::shared_ptr<TierRead>> reads;
  for (std::uint32_t part = 0; part < 8; ++part) reads.push_back(tier->read(blob_id(1, part)));
  for (const auto& read : reads) EXPECT_TRUE(read->take());
  EXPECT_NEAR(clock_.now_s(), 0.010 + 8 * 0.010, 1e-9);
}

TEST_F(ThrottleTest, WritesHaveTheirOwnBandwidth) {
  const auto tier = make(slow_);
  const auto write = tier->write(blob_id(2, 0), blob_bytes(blob_id(2, 0), kBytes));
  const auto read = tier->read(blob_id(1, 0));
  EXPECT_TRUE(read->take());
  EXPECT_NEAR(clock_.now_s(), 0.020, 1e-9);
  EXPECT_TRUE(write->wait());
  EXPECT_NEAR(clock_.now_s(), 0.030, 1e-9);
}

TEST_F(ThrottleTest, ItsSpeedIsWhatItEmulates) {
  const auto tier = make(slow_);
  EXPECT_EQ(tier->speed().samples, 0u);
  EXPECT_NEAR(tier->speed().latency_s, 0.010, 1e-9) << "the first guess";
  ASSERT_TRUE(tier->measure());
  EXPECT_NEAR(tier->speed().latency_s, 0.010, 1e-4);
  EXPECT_NEAR(tier->speed().read_bytes_per_s, slow_.read_bytes_per_s, 1e-3 * slow_.read_bytes_per_s);
  EXPECT_NEAR(tier->speed().write_bytes_per_s, slow_.write_bytes_per_s, 1e-3 * slow_.write_bytes_per_s);
}

TEST_F(ThrottleTest, AReadsEstimateIncludesThoseBeforeIt) {
  const auto tier = make(slow_);
  EXPECT_NEAR(tier->read_eta_s(kBytes), 0.020, 1e-9);
  std::vector<std::shared_ptr<TierRead>> burst;
  for (std::uint32_t i = 0; i < 20; ++i) burst.push_back(tier->read(blob_id(1, i % 8), kBytes));
  EXPECT_EQ(tier->reads_queued().operations, 20u);
  EXPECT_EQ(tier->reads_queued().bytes, 20 * kBytes);
  EXPECT_EQ(tier->writes_queued().bytes, 0u);
  const double estimate_s = tier->read_eta_s(kBytes);
  const auto last = tier->read(blob_id(1, 0));
  EXPECT_TRUE(last->take());
  EXPECT_NEAR(last->seconds(), 0.010 + 21 * 0.010, 1e-9);
  EXPECT_NEAR(estimate_s, last->seconds(), 1e-6);
  EXPECT_EQ(tier->reads_queued().operations, 0u) << "the others have passed, though nobody has taken them";
  EXPECT_NEAR(tier->read_eta_s(kBytes), 0.020, 1e-9);
}

// A store may have begun to look at a folder before its owner recalls what was measured.
TEST_F(ThrottleTest, WhatIsExpectedOfItLeavesReadsInFlight) {
  const auto tier = make(slow_);
  const auto read = tier->read(blob_id(1, 0), kBytes);
  tier->expect({1, 1e6, 1e6});
  EXPECT_EQ(tier->reads_queued().bytes, kBytes);
  EXPECT_TRUE(read->take());
  EXPECT_EQ(tier->reads_queued().operations, 0u);
  EXPECT_EQ(tier->reads_queued().bytes, 0u);
}

TEST_F(ThrottleTest, HalfABurstLaterHalfOfItIsAhead) {
  const auto tier = make(slow_);
  std::vector<std::shared_ptr<TierWrite>> burst;
  for (std::uint32_t i = 0; i < 20; ++i) burst.push_back(tier->write(blob_id(2, i), blob_bytes(blob_id(2, i), kBytes)));
  EXPECT_EQ(tier->writes_queued().bytes, 20 * kBytes);
  clock_.advance(0.2);
  EXPECT_EQ(tier->writes_queued().operations, 10u);
  EXPECT_EQ(tier->writes_queued().bytes, 10 * kBytes);
}

TEST_F(ThrottleTest, ABurstIsNoVerdictOnTheTier) {
  const auto tier = make(slow_);
  ASSERT_TRUE(tier->measure());
  const TierSpeed before = tier->speed();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<TierRead>> burst;
    for (std::uint32_t i = 0; i < 20; ++i) burst.push_back(tier->read(blob_id(1, i % 8), kBytes));
    clock_.advance(3);  // nobody comes for them
    for (const auto& read : burst) EXPECT_TRUE(read->take());
  }
  EXPECT_GT(tier->speed().samples, before.samples);
  EXPECT_NEAR(tier->speed().latency_s, before.latency_s, 0.02 * before.latency_s);
  EXPECT_NEAR(tier->speed().read_bytes_per_s, before.read_bytes_per_s, 0.02 * before.read_bytes_per_s);
  EXPECT_NEAR(tier->stats().read_wait_seconds, 3 * 0.010 * (19 * 20 / 2), 0.1);
}

// As an engine under load reads: chats arrive at random, each asks for some chunks at once and takes them when its turn
// comes, so that on a far tier something is always in flight.
TEST_F(ThrottleTest, ReadsThatOverlapAndAreTakenLateLeaveItsSpeedAsItIs) {
  const Throttle far = {"far", 0.120, 60e6, 40e6};
  for (const double load : {0.2, 0.6, 0.95}) {
    const auto tier = make(far);
    std::mt19937 random(5);
    std::exponential_distribution<double> pause(load * far.read_bytes_per_s / (2.5 * kBytes));
    std::deque<std::pair<double, std::shared_ptr<TierRead>>> waiting;  // when each is taken
    for (int chat = 0; chat < 400; ++chat) {
      clock_.advance(pause(random));
      const double turn_s = clock_.now_s() + 0.3 + 0.001 * static_cast<double>(random() % 700);
      for (std::uint32_t chunk = 0; chunk < 1 + chat % 4u; ++chunk) {
        waiting.emplace_back(turn_s, tier->read(blob_id(1, chunk), kBytes));
      }
      while (!waiting.empty() && waiting.front().first <= clock_.now_s()) {
        EXPECT_TRUE(waiting.front().second->take());
        waiting.pop_front();
      }
    }
    for (const auto& [turn_s, read] : waiting) EXPECT_TRUE(read->take());
    EXPECT_NEAR(tier->speed().latency_s, far.latency_s, 0.05 * far.latency_s) << load;
    EXPECT_NEAR(tier->speed().read_bytes_per_s, far.read_bytes_per_s, 0.05 * far.read_bytes_per_s) << load;
  }
}

TEST_F(ThrottleTest, DroppedReadsTookTheirTime) {
  const auto tier = make(slow_);
  ASSERT_TRUE(tier->measure());
  for (int round = 0; round < 20; ++round) {
    (void)tier->read(blob_id(1, 0));
    EXPECT_TRUE(tier->read(blob_id(1, 1))->take());
    clock_.advance(1);
  }
  EXPECT_NEAR(tier->speed().read_bytes_per_s, slow_.read_bytes_per_s, 0.02 * slow_.read_bytes_per_s);
}

TEST_F(ThrottleTest, DroppedOperationsCountAsNothingAndHoldNobodyUp) {
  const auto tier = make(slow_);
  (void)tier->read(blob_id(1, 0));
  (void)tier->write(blob_id(2, 0), blob_bytes(blob_id(2, 0), kBytes));
  EXPECT_EQ(clock_.now_s(), 0);
  EXPECT_EQ(tier->stats().reads + tier->stats().read_errors + tier->stats().writes + tier->stats().write_errors, 0u);
  EXPECT_TRUE(tier->contains(blob_id(2, 0)));
}

TEST_F(ThrottleTest, SaysWhatItEmulates) {
  const auto tier = make(slow_);
  EXPECT_EQ(tier->emulated(), "slow");
  EXPECT_THAT(tier->describe(), ::testing::HasSubstr("emulating slow"));
  EXPECT_EQ(make_memory_tier(kUnlimited, clock_)->emulated(), "");
}

TEST_F(ThrottleTest, RealTimeIsSleptNotSpun) {
  const RealClock clock;
  auto memory = make_memory_tier(kUnlimited, clock);
  ASSERT_TRUE(memory->write(blob_id(1, 0), blob_bytes(blob_id(1, 0), kBytes))->wait());
  const Throttle slow = {"slow", 0.3, 100.0 * kBytes, 50.0 * kBytes};
  const auto tier = make_throttled_tier(std::move(memory), slow, clock);
  const double start_s = clock.now_s();
  timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  ASSERT_TRUE(tier->read(blob_id(1, 0))->take());
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const double whole_s = clock.now_s() - start_s;
  EXPECT_GE(whole_s, 0.310);
  const double busy_s =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(busy_s, whole_s / 2);
}

TEST(ThrottlePresets, AreNamedAndUnknownOnesListThem) {
  for (const char* name : {"hdd", "sata-ssd", "nvme", "nfs-1g", "s3"}) {
    const auto preset = parse_throttle(name);
    ASSERT_TRUE(preset) << name;
    EXPECT_EQ(preset->name, name);
    EXPECT_GT(preset->latency_s, 0);
    EXPECT_GT(preset->read_bytes_per_s, 0);
  }
  const auto unknown = parse_throttle("floppy");
  EXPECT_EQ(code_of(unknown), ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("nfs-1g"));
}

TEST(FaultyTierTest, FailsWhereAskedAndNowhereElse) {
  const VirtualClock clock;
  Faults faults;
  faults.fail_read = only(2);
  faults.corrupt_read = only(3);
  faults.full = only(1);
  faults.fail_write = only(2);
  FaultyTier tier(make_memory_tier(kUnlimited, clock), faults, clock);
  const BlobId id = blob_id(1, 0);
  EXPECT_EQ(code_of(tier.write(id, blob_bytes(id, 1000))->wait()), ErrorCode::kFull);
  EXPECT_EQ(code_of(tier.write(id, blob_bytes(id, 1000))->wait()), ErrorCode::kIo);
  EXPECT_FALSE(tier.contains(id));
  EXPECT_TRUE(tier.write(id, blob_bytes(id, 1000))->wait());
  EXPECT_TRUE(same_bytes(**tier.read(id)->take(), *blob_bytes(id, 1000)));
  EXPECT_EQ(code_of(tier.read(id)->take()), ErrorCode::kIo);
  EXPECT_FALSE(same_bytes(**tier.read(id)->take(), *blob_bytes(id, 1000)));
  EXPECT_TRUE(same_bytes(**tier.read(id)->take(), *blob_bytes(id, 1000)));
  EXPECT_EQ(tier.stats().read_errors, 1u);
  EXPECT_EQ(tier.stats().write_errors, 1u);
  EXPECT_EQ(tier.stats().refused_full, 1u);
}

}  // namespace
}  // namespace shale::testing
