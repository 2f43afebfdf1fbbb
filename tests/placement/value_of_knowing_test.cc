#include "placement/value_of_knowing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace shale {
namespace {

TEST(ValueOfKnowing, WhatIsKnownIsWorthNothing) {
  const std::vector<UncertainForm> known = {{1, 0, 0.4}, {0.9, 0, 0.1}, {0.5, 0, 0.01}};
  EXPECT_EQ(value_of_knowing(known, 1, 0), 0);
  EXPECT_EQ(value_of_knowing(known, 1, 0.95), 0);
  EXPECT_EQ(value_of_knowing({}, 1, 0.95), 0);
}

// Two forms: what knowing both is worth is the mean of the better one, less the one that would be chosen unseen.
TEST(ValueOfKnowing, IsTheMeanOfTheBetterOfTwo) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (const double alpha : {0.3, 1.0, 3.0}) {
    const std::vector<UncertainForm> forms = {{0.9, 0.03, 0.1}, {0.8, 0.05, 0.02}};
    double better = 0, unseen = 0;
    for (const UncertainForm& form : forms) unseen = std::max(unseen, alpha * form.quality - form.load_s);
    constexpr int kDraws = 400'000;
    for (int i = 0; i < kDraws; ++i) {
      double most = -1e9;
      for (const auto& [quality, learnt, load_s] : forms) {
        most = std::max(most, alpha * (quality + learnt * normal(random)) - load_s);
      }
      better += most / kDraws;
    }
    EXPECT_NEAR(value_of_knowing(forms, alpha, 0), better - unseen, 2e-4 * alpha) << alpha;
  }
}

TEST(ValueOfKnowing, MattersMoreTheNearerTheChoiceIs) {
  double before = 0;
  for (const double quality : {0.5, 0.7, 0.8, 0.85, 0.9}) {
    const std::vector<UncertainForm> forms = {{1, 0, 0.4}, {0.95, 0.01, 0.15}, {quality, 0.05, 0.1}};
    const double value = value_of_knowing(forms, 1, 0);
    EXPECT_GT(value, before);
    before = value;
  }
}

// The same forms: one that is far below the floor does not come to be chosen, and the one that is near it may go.
TEST(ValueOfKnowing, TheFloorKeepsFormsOutAndAsksForSureness) {
  const std::vector<UncertainForm> small_is_unsure = {{1, 0, 0.4}, {0.97, 0, 0.15}, {0.85, 0.04, 0.02}};
  EXPECT_GT(value_of_knowing(small_is_unsure, 1, 0), 0.01);
  EXPECT_LT(value_of_knowing(small_is_unsure, 1, 0.95), 0.001);
  const std::vector<UncertainForm> best_is_unsure = {{1, 0, 0.4}, {0.97, 0.02, 0.15}};
  EXPECT_LT(value_of_knowing(best_is_unsure, 1, 0), 1e-9);
  EXPECT_GT(value_of_knowing(best_is_unsure, 1, 0.96), 0.003);
}

}  // namespace
}  // namespace shale
