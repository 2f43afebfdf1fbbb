#include "metadata/quality_table.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

const Method kKnorm{"knorm", "none"}, kInt8{"", "int8"};

Hash128 prefix(std::uint64_t number) { return {number, 0}; }

// Cached prefixes 1 to 3 are prose of 0.9, 11 to 13 code of 0.5.
QualityTable two_kinds() {
  QualityTable table;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    table.describe(prefix(i), ContextKind::kProse, 400);
    table.record(prefix(i), kKnorm, 0.5, 0.9, 2);
    table.describe(prefix(10 + i), ContextKind::kCode, 400);
    table.record(prefix(10 + i), kKnorm, 0.5, 0.5, 2);
  }
  return table;
}

TEST(QualityTable, PrefixesOfTheSameKindSayMost) {
  QualityTable table = two_kinds();
  const double mean = 0.7;
  EXPECT_DOUBLE_EQ(table.quality_for(prefix(99), kKnorm, 0.5)->expected, mean) << "of no known kind";
  table.describe(prefix(99), ContextKind::kCode, 400);
  EXPECT_DOUBLE_EQ(table.quality_for(prefix(99), kKnorm, 0.5)->expected, (3 * 0.5 + kPriorPrefixes * mean) / 5);
  table.describe(prefix(99), ContextKind::kDialogue, 400);
  EXPECT_DOUBLE_EQ(table.quality_for(prefix(99), kKnorm, 0.5)->expected, mean) << "none of its kind";
}

// Ten texts that ship are far off; two contexts of the server's own weigh as much as all of them.
TEST(QualityTable, AServersOwnPrefixesSayMoreThanTextsThatShip) {
  QualityTable table;
  table.note_shipped(prefix(100));  // before it is measured, as after
  for (std::uint64_t i = 0; i < 10; ++i) table.record(prefix(100 + i), kKnorm, 0.5, 0.9, 2);
  for (std::uint64_t i = 1; i < 10; ++i) table.note_shipped(prefix(100 + i));
  const auto expected = [&] { return table.quality_for(prefix(99), kKnorm, 0.5)->expected; };
  EXPECT_NEAR(expected(), 0.9, 1e-12) << "all that there is";
  table.record(prefix(1), kKnorm, 0.5, 0.5, 2);
  table.record(prefix(2), kKnorm, 0.5, 0.5, 2);
  EXPECT_NEAR(expected(), (2 * 0.5 + kPriorPrefixes * 0.9) / (2 + kPriorPrefixes), 1e-12);
  EXPECT_EQ(table.quality_for(prefix(99), kKnorm, 0.5)->prefixes, 12u);
  table.forget(prefix(2));
  table.forget(prefix(100));
  EXPECT_NEAR(expected(), (0.5 + kPriorPrefixes * 0.9) / (1 + kPriorPrefixes), 1e-12);
  EXPECT_EQ(table.quality_for(prefix(99), kKnorm, 0.5)->prefixes, 10u);
  for (const std::uint64_t own : {1, 3}) {  // of a kind of their own
    table.record(prefix(own), kKnorm, 0.5, 0.5, 2);
    table.describe(prefix(own), ContextKind::kCode, 400);
  }
  table.describe(prefix(99), ContextKind::kCode, 400);
  const double of_all = (2 * 0.5 + kPriorPrefixes * 0.9) / (2 + kPriorPrefixes);
  EXPECT_NEAR(expected(), (2 * 0.5 + kPriorPrefixes * of_all) / (2 + kPriorPrefixes), 1e-12);
}

TEST(QualityTable, KnowsOfHowManyQuestions) {
  QualityTable table;
  EXPECT_EQ(table.questions(prefix(1), kKnorm), 0u);
  table.record(prefix(1), kKnorm, 0.5, 0.9, 4);
  table.record(prefix(1), kInt8, 1, 0.9, 3);
  table.record(prefix(2), kKnorm, 0.25, 0.9, 1);
  EXPECT_EQ(table.questions(prefix(1), kKnorm), 4u);
  table.record(prefix(1), kKnorm, 0.75, 0.9, 2);
  EXPECT_EQ(table.questions(prefix(1), kKnorm), 2u) << "at the keep of fewest";
  EXPECT_EQ(table.questions(prefix(1), kInt8), 3u);
  EXPECT_EQ(table.questions(prefix(2), kInt8), 0u);
}

TEST(QualityTable, AKindThatIsSaidLaterCounts) {
  QualityTable table;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    table.record(prefix(i), kKnorm, 0.5, 0.9, 2);
    table.record(prefix(10 + i), kKnorm, 0.5, 0.5, 2);
  }
  for (std::uint64_t i = 1; i <= 3; ++i) {
    table.describe(prefix(i), ContextKind::kCode, 400);  // wrong, and said again
    table.describe(prefix(i), ContextKind::kProse, 400);
    table.describe(prefix(10 + i), ContextKind::kCode, 400);
  }
  table.describe(prefix(99), ContextKind::kCode, 400);
  EXPECT_NEAR(table.quality_for(prefix(99), kKnorm, 0.5)->expected, 0.58, 1e-12);
}

TEST(QualityTable, FewerThanThreePrefixesSayNothingOfOthers) {
  QualityTable table;
  table.record(prefix(1), kKnorm, 0.5, 0.9, 2);
  table.record(prefix(2), kKnorm, 0.5, 0.8, 2);
  EXPECT_FALSE(table.quality_for(prefix(99), kKnorm, 0.5));
  table.record(prefix(3), kKnorm, 0.5, 0.7, 2);
  EXPECT_NEAR(table.quality_for(prefix(99), kKnorm, 0.5)->expected, 0.8, 1e-12);
  table.forget(prefix(2));
  EXPECT_FALSE(table.quality_for(prefix(99), kKnorm, 0.5));
  EXPECT_EQ(table.quality_for(prefix(1), kKnorm, 0.5)->source, QualitySource::kMeasured);
}

TEST(QualityTable, WhatWasMeasuredLeavesLessUncertain) {
  QualityTable table;
  for (std::uint64_t i = 1; i <= 4; ++i) table.record(prefix(i), kKnorm, 0.5, 0.5 + 0.1 * static_cast<double>(i), 4);
  const Quality prior = table.quality_for(prefix(99), kKnorm, 0.5).value();
  EXPECT_EQ(prior.source, QualitySource::kPrior);
  EXPECT_NEAR(prior.spread, 0.129, 0.001);
  table.record(prefix(99), kKnorm, 0.5, 0.75, 4);
  EXPECT_NEAR(table.quality_for(prefix(99), kKnorm, 0.5)->spread, prior.spread * 0.7071, 0.001);
  table.record(prefix(99), kKnorm, 0.5, 0.75, 1000);
  EXPECT_LT(table.quality_for(prefix(99), kKnorm, 0.5)->spread, 0.01);
}

TEST(QualityTable, ShortPrefixesDropNoTokensUnmeasured) {
  QualityTable table = two_kinds();
  for (std::uint64_t i = 1; i <= 3; ++i) table.record(prefix(i), kInt8, 1, 0.99, 2);
  table.describe(prefix(99), ContextKind::kProse, kPriorTokensMin - 1);
  EXPECT_FALSE(table.quality_for(prefix(99), kKnorm, 0.5));
  EXPECT_TRUE(table.quality_for(prefix(99), kInt8, 1));
  table.record(prefix(99), kKnorm, 0.5, 0.9, 2);
  EXPECT_TRUE(table.quality_for(prefix(99), kKnorm, 0.5));
}

TEST(QualityTable, WithoutAnyAnswerOnlyWhatHardlyMovesAttentionMayBeUsed) {
  QualityTable table;
  EXPECT_FALSE(table.quality_for(prefix(1), kInt8, 1));
  table.bound_error(prefix(1), kInt8, 0.01);
  EXPECT_EQ(table.quality_for(prefix(1), kInt8, 1)->source, QualitySource::kBound);
  EXPECT_EQ(table.quality_for(prefix(1), kInt8, 1)->expected, 0.99);
  EXPECT_FALSE(table.quality_for(prefix(1), kKnorm, 0.5));
  EXPECT_FALSE(table.quality_for(prefix(2), kInt8, 1)) << "its own error was never measured";
  table.bound_error(prefix(1), kInt8, 2 * kNearLossless);
  EXPECT_FALSE(table.quality_for(prefix(1), kInt8, 1));
  for (std::uint64_t i = 11; i <= 13; ++i) table.record(prefix(i), kInt8, 1, 0.97, 2);
  EXPECT_EQ(table.quality_for(prefix(1), kInt8, 1)->source, QualitySource::kPrior) << "answers say more";
}

TEST(QualityTable, WhatContextsAreLikeOutlivesWhatWasMeasured) {
  QualityTable table = two_kinds();
  table.forget_measured();
  EXPECT_FALSE(table.quality_for(prefix(1), kKnorm, 0.5));
  EXPECT_EQ(table.kind(prefix(11)), ContextKind::kCode);
  for (std::uint64_t i = 1; i <= 3; ++i) table.record(prefix(i), kKnorm, 0.5, 0.8, 2);
  EXPECT_NEAR(table.quality_for(prefix(99), kKnorm, 0.5)->expected, 0.8, 1e-12);
}

// What is measured of a prefix stays, and counts among those of no known kind.
TEST(QualityTable, WhatManyContextsAreLikeIsForgottenOldestFirst) {
  QualityTable table = two_kinds();
  table.bound_error(prefix(1), kInt8, 0.01);
  for (std::uint64_t i = 1; i <= QualityTable::kPrefixesMax; ++i) {
    table.describe(prefix(100 + i), ContextKind::kProse, 400);
    table.bound_error(prefix(100 + i), kInt8, 0.01);
  }
  EXPECT_EQ(table.kind(prefix(1)), std::nullopt);
  EXPECT_EQ(table.quality_for(prefix(1), kInt8, 1), std::nullopt);
  EXPECT_TRUE(table.quality_for(prefix(101), kInt8, 1));
  EXPECT_DOUBLE_EQ(table.quality_for(prefix(1), kKnorm, 0.5)->quality, 0.9);
  EXPECT_DOUBLE_EQ(table.quality_for(prefix(101), kKnorm, 0.5)->expected, 0.7) << "prose that is not known as such";
}

}  // namespace
}  // namespace shale
