// `shale bench side-channel` against the built program: what `usage` tells, and that times are measured. What these
// tell is for a quiet machine and many tries.
#include <gtest/gtest.h>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

class SideChannelTest : public TinyProgram {};

TEST_F(SideChannelTest, UsageTellsTheSameTenantAloneWhatWasAsked) {
  const Outcome outcome = run({"bench", "side-channel", "--tries", "6", "--words", "24", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["attacker"], "another tenant");
  EXPECT_EQ(rows[0]["right"]["found"], 0);
  EXPECT_EQ(rows[0]["wrong"]["found"], 0);
  EXPECT_EQ(rows[1]["attacker"], "the same tenant");
  EXPECT_EQ(rows[1]["right"]["found"], 3);
  EXPECT_EQ(rows[1]["wrong"]["found"], 0);
  for (const auto& row : rows) {
    EXPECT_EQ(row["right"]["tries"], 3);
    EXPECT_GT(row["right"]["ttft_seconds"], 0);
    EXPECT_GT(row["ttft_p"], 0);
    EXPECT_LE(row["ttft_p"], 1);
  }
}

}  // namespace
}  // namespace shale::testing
