// What holds for every registered scorer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "scoring/paged_layer.h"
#include "support/simd_targets.h"

namespace shale {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class EveryScorer : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Scorer> scorer(const ScorerOptions& options = {}) const {
    auto made = make_scorer(GetParam(), options);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
};

void expect_ordered(std::span<const float> scores) {
  for (const float score : scores) EXPECT_FALSE(std::isnan(score) || score == kInfinity) << score;
  const std::vector<std::uint32_t> order = ranking(scores);
  std::vector<std::uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i) << "not a permutation";
  for (std::size_t i = 1; i < order.size(); ++i) {
    ASSERT_GE(scores[order[i - 1]], scores[order[i]]) << "rank " << i;
    if (scores[order[i - 1]] == scores[order[i]]) {
      ASSERT_GT(order[i - 1], order[i]) << "ties keep the newer";
    }
  }
}

TEST_P(EveryScorer, KnowsItsName) { EXPECT_EQ(scorer()->name(), GetParam()); }

TEST_P(EveryScorer, RanksARandomContext) {
  const PagedLayer<Half> layer(random_rows(150, 2, 3, 64, 3));
  const std::vector<float> scores = layer.score(*scorer());
  expect_ordered(std::span(scores).first(150));
  expect_ordered(std::span(scores).last(150));
}

TEST_P(EveryScorer, RanksOneWideHead) {
  const std::vector<float> scores = PagedLayer<Half>(random_rows(150, 1, 4, 256, 3)).score(*scorer());
  expect_ordered(scores);
  EXPECT_THAT(scores, ::testing::Each(::testing::Gt(-kInfinity)));
}

TEST_P(EveryScorer, ScoresOneToken) {
  const std::vector<float> scores = PagedLayer<Half>(random_rows(1, 2, 2, 64, 4)).score(*scorer());
  ASSERT_EQ(scores.size(), 2u);
  expect_ordered(std::span(scores).first(1));
  EXPECT_GT(scores[0], -kInfinity);
}

TEST_P(EveryScorer, ScoresNoToken) {
  EXPECT_TRUE(PagedLayer<Half>(random_rows(0, 2, 2, 64, 4)).score(*scorer()).empty());
}

TEST_P(EveryScorer, StaysFiniteWhenAllTokensAreEqual) {
  for (const float value : {0.0f, 1.5f}) {
    LayerRows rows = random_rows(100, 1, 2, 64, 5);
    std::fill(rows.keys.begin(), rows.keys.end(), value);
    std::fill(rows.values.begin(), rows.values.end(), value);
    const std::vector<float> scores = PagedLayer<Half>(rows).score(*scorer());
    expect_ordered(scores);
    EXPECT_THAT(scores, ::testing::Each(::testing::Gt(-kInfinity)));
  }
}

TEST_P(EveryScorer, RanksNonFiniteTokensLastAndSparesTheOthers) {
  const ScorerNeeds needs = scorer()->needs();
  for_each_simd_target([&] {
    for (const float poison : {std::nanf(""), kInfinity, -kInfinity}) {
      LayerRows rows = random_rows(150, 1, 2, 64, 6);
      rows.key(0, 20, 7) = poison;
      rows.key(0, 149, 0) = poison;
      rows.value(0, 33, 1) = poison;
      const std::vector<float> scores = PagedLayer<Half>(rows, 16, needs).score(*scorer());
      expect_ordered(scores);
      for (std::uint32_t i = 0; i < 150; ++i) {
        const bool reads_keys = needs.keys || needs.attention_sums || needs.repeat_attention;
        const bool poisoned = (reads_keys && (i == 20 || i == 149)) || (needs.values && i == 33);
        EXPECT_EQ(scores[i] == -kInfinity, poisoned) << "token " << i << " with " << poison;
      }
    }
  });
}

TEST_P(EveryScorer, SurvivesNonFiniteQueries) {
  LayerRows rows = random_rows(150, 1, 2, 64, 7);
  for (std::size_t i = 0; i < rows.queries.size(); i += 777) rows.queries[i] = i % 2 == 0 ? std::nanf("") : kInfinity;
  const std::vector<float> scores = PagedLayer<Half>(rows).score(*scorer());
  expect_ordered(scores);
  EXPECT_THAT(scores, ::testing::Each(::testing::Gt(-kInfinity)));
}

TEST_P(EveryScorer, MultipliesByTheModelsScale) {
  LayerRows rows = random_rows(150, 2, 2, 64, 11);
  LayerRows doubled = rows;
  rows.attention_scale = 0.25f;  // twice 1/√64
  for (float& query : doubled.queries) query *= 2;
  EXPECT_EQ(PagedLayer<Half>(rows).score(*scorer()), PagedLayer<Half>(doubled).score(*scorer()));
}

TEST_P(EveryScorer, TakesAWindowLongerThanTheContext) {
  const std::unique_ptr<Scorer> wide = scorer({.sinks = 1000, .window = 1000, .kernel = 99});
  expect_ordered(PagedLayer<Half>(random_rows(40, 1, 2, 64, 8)).score(*wide));
}

TEST_P(EveryScorer, TakesAKernelLongerThanTheContext) {
  const std::unique_ptr<Scorer> wide = scorer({.window = 3, .kernel = 99});
  expect_ordered(PagedLayer<Half>(random_rows(40, 1, 2, 64, 8)).score(*wide));
}

TEST_P(EveryScorer, DoesNotDependOnThePageSize) {
  const LayerRows rows = random_rows(140, 2, 2, 64, 9);
  const std::vector<float> expected = PagedLayer<float>(rows, 16).score(*scorer());
  for (const std::uint32_t block_size : {8u, 32u, 64u}) {
    const std::vector<float> scores = PagedLayer<float>(rows, block_size).score(*scorer());
    for (std::size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(scores[i], expected[i], 1e-5) << i;
  }
}

TEST_P(EveryScorer, IsThreadSafeAndDeterministic) {
  const std::unique_ptr<Scorer> shared = scorer();
  const PagedLayer<Half> layer(random_rows(200, 2, 2, 64, 10));
  const std::vector<float> expected = layer.score(*shared);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (auto& result : results) threads.emplace_back([&] { result = layer.score(*shared); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

INSTANTIATE_TEST_SUITE_P(Scorers, EveryScorer, ::testing::ValuesIn(scorer_names()),
                         [](const auto& scorer) { return std::string(scorer.param); });

TEST(Scorers, AreNamedInAlphabeticalOrder) {
  const auto names = scorer_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_THAT(names, ::testing::IsSupersetOf({"expected_attention", "h2o", "impress", "keydiff", "knorm", "kvzip",
                                              "observed_attention", "random", "rkv", "scissorhands", "snapkv",
                                              "streaming", "tova", "triattention", "vk_ratio"}));
}

TEST(Scorers, AnUnknownNameListsTheKnownOnes) {
  const auto made = make_scorer("nope");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("'nope'"));
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("keydiff, knorm"));
}

TEST(Needs, NamesWhatIsMissing) {
  const ScorerNeeds given = {.keys = true, .values = true, .last_queries = 64};
  EXPECT_EQ(missing_needs({.keys = true, .last_queries = 64}, given), "");
  EXPECT_EQ(missing_needs({.last_queries = 65}, given), "the queries of the last 65 tokens");
  EXPECT_EQ(missing_needs({.values = true, .attention_sums = true, .rope = true}, given),
            "the sum of the attention that each token received and the rotation of the keys");
  EXPECT_EQ(missing_needs({.query_moments = true}, {}), "the mean and covariance of the queries before rotation");
  EXPECT_EQ(missing_needs({.repeat_attention = true}, {}), "the attention of the model while it repeats the context");
  EXPECT_EQ(missing_needs({.calibration = true}, {}), "a calibration of the model");
  EXPECT_EQ(missing_needs(given, given), "");
}

TEST(Ranking, PutsHigherFirstNewerFirstAmongTiesAndNanLast) {
  const std::vector<float> scores = {1, std::nanf(""), 2, -kInfinity, 2, -0.0f, 0.0f, -1, kInfinity};
  EXPECT_EQ(ranking(scores), (std::vector<std::uint32_t>{8, 4, 2, 0, 6, 5, 7, 3, 1}));
  EXPECT_TRUE(ranking({}).empty());
}

TEST(KeptTokens, IsTheFloorAndAtLeastOne) {
  EXPECT_EQ(kept_tokens(0, 0.5), 0u);
  EXPECT_EQ(kept_tokens(1, 0.1), 1u);
  EXPECT_EQ(kept_tokens(9, 0.1), 1u);
  EXPECT_EQ(kept_tokens(19, 0.1), 1u);
  EXPECT_EQ(kept_tokens(20, 0.1), 2u);
  EXPECT_EQ(kept_tokens(7, 0.75), 5u);
  EXPECT_EQ(kept_tokens(7, 1.0), 7u);
}

}  // namespace
}  // namespace shale
