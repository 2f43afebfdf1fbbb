// The published table on the real traces: LRU in every digit, the Hybrid of the table to 0.01.
#include "sim/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "sim/simulate.h"
#include "trace/trace_reader.h"

namespace shale {
namespace {

TEST(Published, ATableOfAllCells) {
  std::map<std::string_view, int> rows;
  for (const PublishedRow& row : published_table()) {
    ++rows[row.ours];
    for (const double percent : row.hit_percent) EXPECT_LT(percent, 64);
    EXPECT_TRUE(std::ranges::is_sorted(row.hit_percent)) << row.trace << row.policy << row.scheduler;
  }
  EXPECT_EQ(rows, (std::map<std::string_view, int>{{"hybrid_tabulated", 8}, {"lfu", 8}, {"lru", 8}}));
}

TEST(Published, AgreementIsCountedInPrintedDigits) {
  EXPECT_TRUE(agrees(Agreement::kExact, 0.111849, 11.18));
  EXPECT_FALSE(agrees(Agreement::kExact, 0.111851, 11.18));
  EXPECT_TRUE(agrees(Agreement::kLastDigit, 0.111851, 11.18));
  EXPECT_FALSE(agrees(Agreement::kLastDigit, 0.111951, 11.18));
  EXPECT_TRUE(agrees(Agreement::kIndicative, 0.5, 11.18));
}

class PublishedOnRealTraces : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("SHALE_DATA_DIR");
    if (folder == nullptr) GTEST_SKIP() << "SHALE_DATA_DIR is not set: the Mooncake traces are not here";
    const auto path =
        std::filesystem::path(folder) / "traces" / ("mooncake_" + std::string(GetParam()) + "_trace.jsonl");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    auto trace = load_trace(path);
    ASSERT_TRUE(trace) << trace.error().message;
    trace_ = std::move(*trace);
  }
  Trace trace_;
};

INSTANTIATE_TEST_SUITE_P(Mooncake, PublishedOnRealTraces, testing::Values("conversation", "synthetic"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(PublishedOnRealTraces, CellsHold) {
  for (const PublishedRow& row : published_table()) {
    if (row.trace != GetParam()) continue;
    for (std::size_t i = 0; i < kPublishedBlocks.size(); ++i) {
      const auto result = simulate(
          trace_,
          {.policy = std::string(row.ours), .scheduler = std::string(row.scheduler), .blocks = kPublishedBlocks[i]});
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_TRUE(agrees(row.agreement, result->hit_ratio(), row.hit_percent[i]))
          << row.ours << " " << row.scheduler << " " << kPublishedBlocks[i] << ": " << 100 * result->hit_ratio()
          << ", published " << row.hit_percent[i];
    }
  }
}

}  // namespace
}  // namespace shale
