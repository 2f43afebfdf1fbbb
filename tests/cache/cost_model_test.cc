#include "cache/cost_model.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(CostModel, RecoversLinearAndAttendedCost) {
  CostModel model;
  const auto truth = [](double n, double depth) { return 2e-3 * n + 1e-7 * n * (depth + n / 2); };
  for (const std::uint32_t depth : {0u, 512u, 1024u, 4096u}) model.prefill(512, depth, truth(512, depth));
  EXPECT_NEAR(model.prefill_s(512, 2048), truth(512, 2048), 1e-3 * truth(512, 2048));
  EXPECT_NEAR(model.prefill_s(24, 4096), truth(24, 4096), 1e-2 * truth(24, 4096));
}

TEST(CostModel, NeverPredictsNegativeTimeFromNoise) {
  CostModel model;
  model.prefill(512, 0, 1.0);
  model.prefill(512, 4096, 0.5);  // deeper and yet faster: noise
  EXPECT_GT(model.prefill_s(1, 0), 0);
  EXPECT_GT(model.prefill_s(512, 100000), 0);
}

TEST(CostModel, OneReportScalesWithTokens) {
  CostModel model;
  EXPECT_GT(model.prefill_s(100, 0), 0);
  model.prefill(100, 0, 1.0);
  EXPECT_NEAR(model.prefill_s(200, 0), 2.0, 1e-9);
}

TEST(CostModel, NewerReportsWeighMore) {
  CostModel model;
  for (int i = 0; i < 200; ++i) model.prefill(256, 0, 1.0);
  for (int i = 0; i < 200; ++i) model.prefill(256, 0, 2.0);
  EXPECT_GT(model.prefill_s(256, 0), 1.7);
}

TEST(CostModel, DecodingHasARatePerQuantizer) {
  CostModel model;
  model.decoded("int8", 1000, 1.0);
  EXPECT_NEAR(model.decode_s("int8", 500), 0.5, 1e-9);
  EXPECT_LT(model.decode_s("none", 500), 0.5);
  model.decoded("int8", 0, 1.0);  // says nothing
  EXPECT_NEAR(model.decode_s("int8", 500), 0.5, 1e-9);
}

}  // namespace
}  // namespace shale
