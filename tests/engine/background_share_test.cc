#include "engine/background_share.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(BackgroundShare, IsLessWhileSomebodyWaitsForAFirstToken) {
  EXPECT_DOUBLE_EQ(background_share_of(0.1, 0, false), 0.1);
  EXPECT_DOUBLE_EQ(background_share_of(0.1, 0, true), 0.025);
  EXPECT_DOUBLE_EQ(background_share_of(0.1, 0.25, true), 0.025);
}

TEST(BackgroundShare, GrowsWithWhatHoldsThePool) {
  for (const bool waited_for : {false, true}) {
    EXPECT_NEAR(background_share_of(0.1, 0.2501, waited_for), 0.1, 1e-3);
    EXPECT_DOUBLE_EQ(background_share_of(0.1, 0.5, waited_for), 0.3);
    EXPECT_DOUBLE_EQ(background_share_of(0.1, 0.75, waited_for), 0.5);
    EXPECT_DOUBLE_EQ(background_share_of(0.1, 1, waited_for), 0.5);
  }
}

TEST(BackgroundShare, GrowsToHalfOfAStepUnlessItIsMore) {
  EXPECT_DOUBLE_EQ(background_share_of(0.3, 1, true), 0.5);
  EXPECT_DOUBLE_EQ(background_share_of(2, 1, true), 2);
}

TEST(BackgroundShare, OfNothingIsNothing) { EXPECT_EQ(background_share_of(0, 1, false), 0); }

}  // namespace
}  // namespace shale
