// When a tier is left alone, and when it is tried again.
#include "tier/breaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace shale::testing {
namespace {

using Kind = BreakerState::Kind;

class BreakerTest : public ::testing::Test {
 protected:
  Status answer() { return {}; }
  Status silence() { return fail(ErrorCode::kIo, "did not answer within 1.0 s"); }
  // Lets `operations` fail that it admits.
  void fail_times(unsigned operations) {
    for (unsigned i = 0; i < operations; ++i) {
      const auto ticket = breaker_.admit();
      ASSERT_TRUE(ticket);
      breaker_.ended(*ticket, silence());
    }
  }

  VirtualClock clock_;
  Breaker breaker_{{.failures_in_row = 3, .pause_s = 1, .pause_s_max = 3}, clock_};
};

TEST_F(BreakerTest, OpensAfterSoManyFailuresInARowAndRefusesAtOnce) {
  fail_times(2);
  breaker_.ended(breaker_.admit().value(), fail(ErrorCode::kNotFound, "a miss is an answer"));
  fail_times(2);
  EXPECT_EQ(breaker_.state().kind, Kind::kClosed);
  EXPECT_FALSE(breaker_.trouble());
  fail_times(1);
  EXPECT_EQ(breaker_.state().kind, Kind::kOpen);
  const auto refused = breaker_.admit();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("did not answer within 1.0 s"));
  EXPECT_EQ(breaker_.trouble()->code, ErrorCode::kIo);
  EXPECT_EQ(breaker_.state().refused, 1u);
  EXPECT_EQ(breaker_.state().failures, 5u);
}

TEST_F(BreakerTest, OneProbeAfterAPauseThatGrows) {
  fail_times(3);
  for (const double pause_s : {1.0, 2.0, 3.0, 3.0}) {
    clock_.advance(pause_s - 0.01);
    EXPECT_FALSE(breaker_.admit());
    clock_.advance(0.01);
    const auto probe = breaker_.admit();
    ASSERT_TRUE(probe);
    EXPECT_EQ(breaker_.state().kind, Kind::kHalfOpen);
    EXPECT_FALSE(breaker_.admit()) << "one at a time";
    breaker_.ended(*probe, silence());
  }
  clock_.advance(3);
  breaker_.ended(breaker_.admit().value(), answer());
  EXPECT_EQ(breaker_.state().kind, Kind::kClosed);
  EXPECT_EQ(breaker_.state().opened, 5u);
  fail_times(3);
  clock_.advance(1);
  EXPECT_TRUE(breaker_.admit()) << "the pause begins anew";
}

TEST_F(BreakerTest, AProbeThatIsGivenUpLetsAnotherGo) {
  fail_times(3);
  clock_.advance(1);
  breaker_.ended(breaker_.admit().value(), fail(ErrorCode::kCancelled, "closing"));
  EXPECT_TRUE(breaker_.admit());
}

// What was sent before and fails only now says nothing of how the server is since.
TEST_F(BreakerTest, OnlyTheProbeSaysThatItStillFails) {
  std::vector<Breaker::Ticket> before;
  for (int i = 0; i < 8; ++i) before.push_back(breaker_.admit().value());
  for (int i = 0; i < 3; ++i) breaker_.ended(before[i], silence());
  clock_.advance(1);
  const Breaker::Ticket probe = breaker_.admit().value();
  breaker_.ended(before[3], silence());
  EXPECT_EQ(breaker_.state().kind, Kind::kHalfOpen);
  breaker_.ended(probe, answer());
  for (int i = 4; i < 7; ++i) breaker_.ended(before[i], silence());
  EXPECT_EQ(breaker_.state().kind, Kind::kClosed);
  EXPECT_EQ(breaker_.state().failures, 7u) << "they are counted";
  fail_times(3);
  breaker_.ended(before[7], answer());
  EXPECT_EQ(breaker_.state().kind, Kind::kClosed) << "it answers";
}

}  // namespace
}  // namespace shale::testing
