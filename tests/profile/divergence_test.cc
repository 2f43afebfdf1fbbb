#include "profile/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shale {
namespace {

TEST(Divergence, OfTheSameLogitsIsNothing) {
  const std::vector<float> logits = {1, 2, 3, 0, -1, 7};
  const std::vector<Token> reference = {2, 2};
  const Divergence same = divergence(logits, logits, reference, 3);
  EXPECT_EQ(same.agreement, 1);
  EXPECT_NEAR(same.kl, 0, 1e-12);
}

// p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = ½ ln 2 + ¼ ln ½ = ¼ ln 2. Adding a constant to logits changes nothing.
TEST(Divergence, OfHandMadeDistributions) {
  const float half = std::log(0.5F), quarter = std::log(0.25F);
  const std::vector<float> full = {half, quarter, quarter, 5, 0, 0};
  const std::vector<float> compressed = {quarter + 9, quarter + 9, half + 9, 5, 0, 0};
  const std::vector<Token> reference = {0, 0};
  const Divergence two = divergence(full, compressed, reference, 3);
  EXPECT_EQ(two.agreement, 0.5) << "the first position's arg max moved, the second's did not";
  EXPECT_NEAR(two.kl, 0.5 * 0.25 * std::log(2.0), 1e-6);
}

TEST(Divergence, IsNeverNegativeAndStaysFiniteForExtremeLogits) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 30);
  std::vector<float> full(1000), compressed(1000);
  for (int round = 0; round < 20; ++round) {
    for (float& logit : full) logit = normal(random);
    for (float& logit : compressed) logit = normal(random);
    const std::vector<Token> reference = {arg_max(full)};
    const Divergence one = divergence(full, compressed, reference, full.size());
    EXPECT_GE(one.kl, 0);
    EXPECT_TRUE(std::isfinite(one.kl));
  }
}

TEST(Divergence, OfBrokenLogitsIsInfinite) {
  const std::vector<float> full = {1, 0}, broken = {std::numeric_limits<float>::quiet_NaN(), 0};
  const std::vector<Token> reference = {0};
  const Divergence one = divergence(full, broken, reference, 2);
  EXPECT_EQ(one.agreement, 0);
  EXPECT_TRUE(std::isinf(one.kl));
}

TEST(Divergence, TiesOfTheArgMaxGoToTheSmallerToken) { EXPECT_EQ(arg_max(std::vector<float>{0, 3, 3}), 1); }

}  // namespace
}  // namespace shale
