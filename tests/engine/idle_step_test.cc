#include "engine/idle_step.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

constexpr double kBoundS = 0.02;

struct SteppingMachine {
  double step_s, token_s;
  double seconds(std::uint32_t tokens) const { return step_s + token_s * tokens; }
  void run(IdleStep& idle, int steps) const {
    for (int i = 0; i < steps; ++i) idle.took(idle.tokens(), seconds(idle.tokens()));
  }
};

TEST(IdleStepTest, IsTheLargestThatKeepsTheBoundWhateverAStepCostsByItself) {
  for (const SteppingMachine& machine :
       {SteppingMachine{0.015, 0.0001}, SteppingMachine{0.002, 0.0005}, SteppingMachine{0.0, 0.0001}}) {
    IdleStep idle(kBoundS);
    machine.run(idle, 50);
    EXPECT_LE(machine.seconds(idle.tokens()), kBoundS);
    EXPECT_TRUE(idle.tokens() == 128 || machine.seconds(2 * idle.tokens()) > kBoundS) << idle.tokens();
  }
}

TEST(IdleStepTest, StaysAtTheSmallestWhereEvenThatTakesLonger) {
  IdleStep idle(kBoundS);
  SteppingMachine{0.03, 0.001}.run(idle, 50);
  EXPECT_EQ(idle.tokens(), 8u);
}

TEST(IdleStepTest, FollowsAMachineThatBecomesSlowerAndFasterAgain) {
  IdleStep idle(kBoundS);
  const SteppingMachine fast{0.001, 0.0002}, slow{0.002, 0.002};
  fast.run(idle, 50);
  ASSERT_EQ(idle.tokens(), 64u);
  slow.run(idle, 50);
  EXPECT_EQ(idle.tokens(), 8u);
  fast.run(idle, 50);
  EXPECT_EQ(idle.tokens(), 64u);
}

TEST(IdleStepTest, TakesNoNoteOfShorterSteps) {
  IdleStep idle(kBoundS);
  for (int i = 0; i < 10; ++i) idle.took(1, 10);
  EXPECT_EQ(idle.tokens(), 16u);
}

}  // namespace
}  // namespace shale
