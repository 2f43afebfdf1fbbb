#include "profile/metrics/text_metrics.h"

#include <gtest/gtest.h>

#include "profile/bootstrap.h"

namespace shale {
namespace {

TEST(TextMetricsTest, F1CountsNormalisedWords) {
  EXPECT_DOUBLE_EQ(f1("The Denver Broncos!", "denver broncos"), 1);
  EXPECT_DOUBLE_EQ(f1("the U.S.", "US"), 1);
  // One word in common, of two and of three.
  EXPECT_DOUBLE_EQ(f1("Denver won", "the Denver Broncos team"), 2.0 * 1 / (2 + 3));
  // A word counts as often as both sides have it.
  EXPECT_DOUBLE_EQ(f1("no no no", "no"), 2.0 * 1 / (3 + 1));
  EXPECT_DOUBLE_EQ(f1("north", "south"), 0);
}

TEST(TextMetricsTest, ExactMatchLooksPastCaseArticlesAndPunctuation) {
  EXPECT_EQ(exact_match("A  308.", "308"), 1);
  EXPECT_EQ(exact_match("308 points", "308"), 0);
}

TEST(TextMetricsTest, RougeLFollowsTheOrderOfWords) {
  EXPECT_DOUBLE_EQ(rouge_l("police killed the gunman", "police kill the gunman"), 0.75);
  EXPECT_DOUBLE_EQ(rouge_l("the gunman kill police", "police kill the gunman"), 0.5);
}

TEST(TextMetricsTest, CodeBleuLikesTheSameCode) {
  const std::string code = "def add(a, b):\n    return a + b\n";
  EXPECT_DOUBLE_EQ(code_bleu(code, code), 1);
  EXPECT_DOUBLE_EQ(code_bleu("def  add( a,b ) :\n return a+b", code), 1);
  const double renamed = code_bleu("def sum(x, y):\n    return x + y\n", code);
  const double other = code_bleu("print('hello')", code);
  EXPECT_GT(renamed, other);
  EXPECT_LT(renamed, 1);
  // Keywords weigh more than names.
  EXPECT_GT(code_bleu("return other", "return value"), code_bleu("other value", "return value"));
}

TEST(TextMetricsTest, EmptyTextsAreDefined) {
  for (const TextMetric& metric : text_metrics()) {
    EXPECT_EQ(metric.compare("", ""), 1) << metric.name;
    EXPECT_EQ(metric.compare("", "word"), 0) << metric.name;
    EXPECT_EQ(metric.compare("word", ""), 0) << metric.name;
    EXPECT_EQ(best_of(metric, "word", {}), 0) << metric.name;
    EXPECT_EQ(best_of(metric, "word", std::vector<std::string>{"other", "word"}), 1) << metric.name;
  }
}

TEST(BootstrapTest, TheIntervalHoldsTheMeanAndNarrowsWithMoreGroups) {
  std::vector<std::vector<double>> few, many;
  for (int i = 0; i < 100; ++i) (i < 10 ? few : many).push_back({i % 10 / 9.0, i % 10 / 9.0});
  const Interval wide = bootstrap_mean(few), narrow = bootstrap_mean(many);
  EXPECT_NEAR(wide.mean, 0.5, 1e-12);
  EXPECT_LT(wide.low, wide.mean);
  EXPECT_GT(wide.high, wide.mean);
  EXPECT_LT(narrow.high - narrow.low, (wide.high - wide.low) / 2);
}

TEST(BootstrapTest, FewValuesAreDefined) {
  EXPECT_EQ(bootstrap_mean({}).mean, 0);
  const std::vector<std::vector<double>> one = {{}, {0.25, 0.75}};
  const Interval interval = bootstrap_mean(one);
  EXPECT_EQ(interval.mean, 0.5);
  EXPECT_EQ(interval.low, 0.5);
  EXPECT_EQ(interval.high, 0.5);
}

}  // namespace
}  // namespace shale
