#include "core/quantile.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shale {
namespace {

// The rank is rounded up to, not beyond: of a hundred values one lies above the 99th percentile, of two the first is
// the median.
TEST(Quantile, IsTheNearestRank) {
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1.0);
  EXPECT_EQ(quantile(hundred, 0.99), 99);
  EXPECT_EQ(quantile(hundred, 0.991), 100);
  EXPECT_EQ(quantile(hundred, 0.5), 50);
  EXPECT_EQ(quantile(hundred, 1), 100);
  EXPECT_EQ(quantile(hundred, 0), 1);
  EXPECT_EQ(quantile({4, 3}, 0.5), 3);
  EXPECT_EQ(quantile({7}, 0.99), 7);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace shale
