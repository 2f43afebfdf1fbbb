#include "cache/planner_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shale {
namespace {

using ::testing::HasSubstr;

TEST(PlannerChoice, PlannersByTheirNames) {
  for (const char* name : {"lfu", "lru", "prefill", "shale"}) {
    const PlannerChoice choice = parse_planner(name).value();
    EXPECT_EQ(choice.planner, name);
    EXPECT_FALSE(choice.method);
  }
}

TEST(PlannerChoice, OneFormForAll) {
  const PlannerChoice coded = parse_planner("fixed:kivi4").value();
  EXPECT_EQ(coded.planner, "fixed");
  EXPECT_EQ(coded.method->text(), "kivi4");
  EXPECT_EQ(coded.keep, 1);
  const PlannerChoice ranked = parse_planner("fixed:adakv:snapkv+int8@0.25").value();
  EXPECT_EQ(ranked.method->text(), "adakv:snapkv+int8");
  EXPECT_EQ(ranked.keep, 0.25);
  EXPECT_TRUE(parse_planner("fixed:full").value().method->is_full());
}

TEST(PlannerChoice, ImpressKeepsAllAndReadsWhatItsOwnScorerRanksHighest) {
  const PlannerChoice choice = parse_planner("impress").value();
  EXPECT_EQ(choice.method->scorer, "impress");
  EXPECT_EQ(choice.keep, 1);
  EXPECT_EQ(choice.read_keep, 0.5);
  EXPECT_EQ(parse_planner("impress@0.1").value().read_keep, 0.1);
  EXPECT_EQ(parse_planner("fixed:knorm@0.1").value().read_keep, 1);
}

TEST(PlannerChoice, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "fixed:METHOD[@KEEP]"},
      {"oracle", "'oracle'"},
      {"lru:int8", "'lru:int8'"},
      {"shale@0.5", "'shale@0.5'"},
      {"fixed", "needs a method"},
      {"fixed:", "method"},
      {"fixed:magic", "magic"},
      {"fixed:knorm@0.3", "'0.3'"},
      {"fixed:knorm@", "''"},
      {"fixed:int8@0.5", "int8"},
      {"impress:int8", "'impress:int8'"},
      {"impress@2", "'2'"},
  };
  for (const auto& [text, named] : wrong) {
    const auto choice = parse_planner(text);
    ASSERT_FALSE(choice) << text;
    EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(choice.error().message, HasSubstr(named)) << text;
  }
}

}  // namespace
}  // namespace shale
