#include "profile/rank_correlation.h"

#include <gtest/gtest.h>

#include <vector>

namespace shale {
namespace {

std::optional<double> of(const std::vector<double>& a, const std::vector<double>& b) { return rank_correlation(a, b); }

TEST(RankCorrelation, ReadsOrderAndNothingElse) {
  EXPECT_EQ(of({1, 2, 3, 4}, {10, 200, 201, 1e9}), 1);
  EXPECT_EQ(of({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_NEAR(of({1, 2, 3, 4, 5}, {2, 1, 4, 3, 5}).value(), 0.8, 1e-12);  // 1 - 6 · 4 / (5 · 24)
}

TEST(RankCorrelation, EqualValuesShareTheirRanks) {
  // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / √(4.5 · 5).
  EXPECT_NEAR(of({1, 2, 2, 3}, {1, 2, 3, 4}).value(), 0.9486832980505138, 1e-12);
}

TEST(RankCorrelation, SaysNothingWhereThereIsNoOrder) {
  EXPECT_FALSE(of({1, 1, 1}, {1, 2, 3}));
  EXPECT_FALSE(of({1}, {2}));
  EXPECT_FALSE(of({}, {}));
}

}  // namespace
}  // namespace shale
