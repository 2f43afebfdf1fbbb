#include "bench/rank_test.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace shale {
namespace {

// As scipy.stats.mannwhitneyu(a, b, method="asymptotic") has it.
TEST(RankTestTest, AgreesWithOthers) {
  const RankTest apart = rank_test(std::vector<double>{19, 22, 16, 29, 24}, std::vector<double>{20, 11, 17, 12});
  EXPECT_NEAR(apart.auc, 17.0 / 20, 1e-12);
  EXPECT_NEAR(apart.p, 0.11134688653314041, 1e-12);
  const RankTest tied = rank_test(std::vector<double>{1, 2, 2, 3, 5}, std::vector<double>{2, 2, 3, 4, 4, 6});
  EXPECT_NEAR(tied.p, 0.34781571233583863, 1e-12);
}

TEST(RankTestTest, WhatIsAlikeIsNotToldApart) {
  const std::vector<double> same(20, 3.0);
  EXPECT_EQ(rank_test(same, same).p, 1);
  EXPECT_EQ(rank_test(same, same).auc, 0.5);
  EXPECT_EQ(rank_test(same, {}).p, 1);
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 1), moved(1, 1);
  int found = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<double> a(100), b(100), c(100);
    for (double& value : a) value = normal(random);
    for (double& value : b) value = normal(random);
    for (double& value : c) value = moved(random);
    found += rank_test(a, b).p <= 0.05;
    EXPECT_LT(rank_test(a, c).p, 1e-3);
    EXPECT_LT(rank_test(a, c).auc, 0.5);
  }
  EXPECT_NEAR(found / 400.0, 0.05, 0.03);
}

}  // namespace
}  // namespace shale
