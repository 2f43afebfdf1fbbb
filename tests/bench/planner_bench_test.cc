#include <gtest/gtest.h>

#include "microbench/planner.h"

namespace shale::bench {
namespace {

// Each time that is measured by it is two seconds longer than the one before.
class SlowingClock final : public Clock {
 public:
  double now_s() const override { return now_s_ += ++calls_; }
  void sleep_until_s(double) const override {}

 private:
  mutable double now_s_ = 0, calls_ = 0;
};

TEST(PlannerBench, OfAHundredChangesOneIsBeyondThe99thPercentile) {
  const SlowingClock clock;
  const auto rows = planner_changes_rows({.prefixes = {100}}, clock);
  ASSERT_FALSE(rows.empty());
  for (const PlannerChangesRow& row : rows) {
    ASSERT_EQ(row.count, 100u);
    EXPECT_NEAR(row.p99_seconds - row.mean_seconds, 2 * (99 - 50.5), 1e-6) << row.planner << ", " << row.changes;
  }
}

}  // namespace
}  // namespace shale::bench
