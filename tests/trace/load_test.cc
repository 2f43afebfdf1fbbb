// Whole traces: real files and the numbers that blocks get.
#include <gtest/gtest.h>

#include <cstdlib>

#include "trace/trace_reader.h"

namespace shale {
namespace {

std::filesystem::path real(const std::string& name) {
  const char* folder = std::getenv("SHALE_DATA_DIR");
  return folder ? std::filesystem::path(folder) / "traces" / name : std::filesystem::path();
}

struct Facts {
  const char* file;
  std::size_t requests, blocks, unique;
};

class RealTrace : public ::testing::TestWithParam<Facts> {};

TEST_P(RealTrace, HasThePublishedCounts) {
  const auto path = real(GetParam().file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "set SHALE_DATA_DIR to the folder of traces/" << GetParam().file;
  const auto trace = load_trace(path);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->requests.size(), GetParam().requests);
  EXPECT_EQ(trace->blocks.size(), GetParam().blocks);
  EXPECT_EQ(trace->unique_blocks(), GetParam().unique);
}

INSTANTIATE_TEST_SUITE_P(Mooncake, RealTrace,
                         ::testing::Values(Facts{"mooncake_conversation_trace.jsonl", 12031, 288500, 182790},
                                           Facts{"mooncake_synthetic_trace.jsonl", 3993, 121877, 43924}));

}  // namespace
}  // namespace shale
