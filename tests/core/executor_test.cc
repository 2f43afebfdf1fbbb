#include "core/executor.h"

#include <gtest/gtest.h>

#include <vector>

namespace shale {
namespace {

TEST(InlineExecutor, RunsEveryPieceOnce) {
  InlineExecutor executor;
  std::vector<int> runs(37);
  executor.parallel_for(runs.size(), [&](std::size_t i) { ++runs[i]; });
  EXPECT_EQ(runs, std::vector<int>(37, 1));
  executor.parallel_for(0, [](std::size_t) { FAIL(); });
  EXPECT_EQ(executor.threads(), 1u);
}

}  // namespace
}  // namespace shale
