// Every scorer that computes against a naive twin in double precision, under every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "scoring/attention_twins.h"
#include "scoring/paged_layer.h"
#include "support/simd_targets.h"

namespace shale {
namespace {

using Twin = std::vector<double> (*)(LayerRows& rows, const ScorerOptions& options);

double norm(const float* row, std::uint32_t head_dim) {
  double squares = 0;
  for (std::uint32_t c = 0; c < head_dim; ++c) squares += double{row[c]} * row[c];
  return std::sqrt(squares);
}

std::vector<double> knorm_twin(LayerRows& rows, const ScorerOptions&) {
  std::vector<double> scores;
  for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
    for (std::uint32_t i = 0; i < rows.tokens; ++i) scores.push_back(-norm(&rows.key(head, i, 0), rows.head_dim));
  }
  return scores;
}

std::vector<double> vk_ratio_twin(LayerRows& rows, const ScorerOptions&) {
  std::vector<double> scores;
  for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
    for (std::uint32_t i = 0; i < rows.tokens; ++i) {
      scores.push_back(norm(&rows.value(head, i, 0), rows.head_dim) / norm(&rows.key(head, i, 0), rows.head_dim));
    }
  }
  return scores;
}

std::vector<double> keydiff_twin(LayerRows& rows, const ScorerOptions&) {
  std::vector<double> scores;
  for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
    std::vector<double> anchor(rows.head_dim);
    for (std::uint32_t i = 0; i < rows.tokens; ++i) {
      const double length = norm(&rows.key(head, i, 0), rows.head_dim);
      for (std::uint32_t c = 0; c < rows.head_dim; ++c) anchor[c] += rows.key(head, i, c) / length / rows.tokens;
    }
    double anchor_squares = 0;
    for (const double a : anchor) anchor_squares += a * a;
    for (std::uint32_t i = 0; i < rows.tokens; ++i) {
      double dot = 0;
      for (std::uint32_t c = 0; c < rows.head_dim; ++c) dot += anchor[c] * rows.key(head, i, c);
      scores.push_back(-dot / norm(&rows.key(head, i, 0), rows.head_dim) / std::sqrt(anchor_squares));
    }
  }
  return scores;
}

std::vector<double> impress_twin(LayerRows& rows, const ScorerOptions& options) {
  const std::vector<double> attention = snapkv_twin(rows, {.window = options.window, .kernel = 1});
  std::vector<double> scores(attention.size());
  for (std::uint32_t i = 0; i < attention.size(); ++i) {
    for (std::uint32_t other = 0; other < rows.tokens; ++other) {
      if (other / 64 != i % rows.tokens / 64) continue;
      double importance = 0;
      const std::uint32_t heads = std::min(3u, rows.kv_heads);
      for (std::uint32_t head = 0; head < heads; ++head) importance += attention[head * rows.tokens + other] / heads;
      scores[i] = std::max(scores[i], importance);
    }
  }
  return scores;
}

struct Case {
  const char* name;
  Twin twin;
  double tolerance;
};

class Twins : public ::testing::TestWithParam<Case> {
 protected:
  template <class Element>
  void compare(const LayerRows& rows, std::uint32_t block_size, const Scorer& scorer,
               const std::vector<double>& expected) {
    const std::vector<float> scores = PagedLayer<Element>(rows, block_size, scorer.needs()).score(scorer);
    ASSERT_EQ(scores.size(), expected.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      ASSERT_NEAR(scores[i], expected[i], GetParam().tolerance) << i;
    }
  }
};

TEST_P(Twins, AgreeForEveryShape) {
  ScorerOptions options;
  options.window = 11;
  const auto scorer = make_scorer(GetParam().name, options);
  ASSERT_TRUE(scorer);
  std::vector<float> factors(32);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + static_cast<float>(i % 5) / 2;
  for (const auto& [tokens, kv_heads, group, head_dim] : std::vector<std::array<std::uint32_t, 4>>{
           {12, 1, 1, 64}, {97, 3, 3, 64}, {256, 2, 7, 64}, {75, 2, 2, 18}, {130, 1, 4, 128}, {90, 1, 4, 256}}) {
    LayerRows rows = random_rows(tokens, kv_heads, group, head_dim, tokens);
    if (tokens % 2 == 0) {  // keys that resemble each other, as real ones do
      for (float& key : rows.keys) key = to_float(to_half(key + 1.0f));
    } else {
      rows.rope.pairing = Rope::Pairing::kNeighbours;
      rows.rope.scale = 0.125;
      rows.rope.factors = std::span(factors).first(head_dim / 2);
    }
    const std::vector<double> expected = GetParam().twin(rows, options);
    for_each_simd_target([&] {
      for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, head_dim " << head_dim << ", pages of " << block_size);
        ASSERT_NO_FATAL_FAILURE(compare<Half>(rows, block_size, **scorer, expected));
        ASSERT_NO_FATAL_FAILURE(compare<float>(rows, block_size, **scorer, expected));
      }
    });
  }
}

const std::vector<Case> kCases = {{"knorm", knorm_twin, 2e-5},
                                  {"keydiff", keydiff_twin, 2e-6},
                                  {"vk_ratio", vk_ratio_twin, 2e-6},
                                  {"snapkv", snapkv_twin, 2e-6},
                                  {"impress", impress_twin, 2e-6},
                                  {"tova", tova_twin, 2e-6},
                                  {"h2o", h2o_twin, 0.1},
                                  {"observed_attention", observed_attention_twin, 5e-6},
                                  {"scissorhands", scissorhands_twin, 1.1},  // equal but for rounding
                                  {"expected_attention", expected_attention_twin, 2e-5},
                                  {"rkv", rkv_twin, 2e-6},
                                  {"triattention", triattention_twin, 2e-4}};

INSTANTIATE_TEST_SUITE_P(Scorers, Twins, ::testing::ValuesIn(kCases),
                         [](const auto& scorer) { return std::string(scorer.param.name); });

TEST(ScorerTwins, EveryScorerThatComputesHasOne) {
  // By place, by lot, and by an attention that the model computes (profile).
  const std::set<std::string_view> without = {"streaming", "random", "kvzip"};
  for (const std::string_view name : scorer_names()) {
    const bool has = std::ranges::any_of(kCases, [&](const Case& each) { return each.name == name; });
    EXPECT_NE(has, without.contains(name)) << name << " needs a naive twin in this file";
  }
}

TEST(SnapKv, ReadsTheLastOfTheCapturedQueries) {
  LayerRows rows = random_rows(80, 2, 2, 32, 5);
  LayerRows cut = rows;
  cut.window_tokens = 16;
  cut.queries.clear();
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    const auto end = rows.queries.begin() + (head + 1) * 80 * 32;
    cut.queries.insert(cut.queries.end(), end - 16 * 32, end);
  }
  const auto scorer = make_scorer("snapkv", {.window = 16});
  EXPECT_EQ(PagedLayer<float>(rows).score(**scorer), PagedLayer<float>(cut).score(**scorer));
}

// Of a prompt whose beginning was not computed a first chunk may be shorter than the window.
TEST(SnapKv, ReadsTheQueriesThatThereAre) {
  LayerRows rows = random_rows(80, 2, 2, 32, 5), cut = rows;
  cut.window_tokens = 8;
  cut.queries.clear();
  for (std::uint32_t head = 0; head < rows.query_heads; ++head) {
    const auto end = rows.queries.begin() + (head + 1) * 80 * 32;
    cut.queries.insert(cut.queries.end(), end - 8 * 32, end);
    std::fill(end - 80 * 32, end - 8 * 32, std::nanf(""));  // queries that add nothing
  }
  const auto scorer = make_scorer("snapkv", {.window = 16});
  EXPECT_EQ(PagedLayer<float>(cut).score(**scorer), PagedLayer<float>(rows, 16, {}).score(**scorer));
}

TEST(SnapKv, OptionsOutOfRangeAreErrors) {
  EXPECT_EQ(make_scorer("snapkv", {.window = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_scorer("snapkv", {.kernel = 4}).error().code, ErrorCode::kInvalidArgument);
}

TEST(Random, IsASeededPermutationPerLayerAndHead) {
  LayerRows rows = random_rows(100, 2, 1, 32, 1);
  const auto scorer = make_scorer("random", {.seed = 9}), other_seed = make_scorer("random", {.seed = 10});
  const std::vector<float> scores = PagedLayer<Half>(rows).score(**scorer);
  const std::vector<float> head0(scores.begin(), scores.begin() + 100), head1(scores.begin() + 100, scores.end());
  std::vector<float> sorted = head0;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<float>(i));
  EXPECT_NE(head0, head1);
  EXPECT_EQ(scores, PagedLayer<Half>(rows).score(**scorer));
  EXPECT_NE(scores, PagedLayer<Half>(rows).score(**other_seed));
  rows.layer = 1;
  EXPECT_NE(scores, PagedLayer<Half>(rows).score(**scorer));
}

TEST(Streaming, RanksSinksThenNewestFirst) {
  const auto scorer = make_scorer("streaming", {.sinks = 2});
  const std::vector<float> scores = PagedLayer<Half>(random_rows(6, 1, 1, 32, 1)).score(**scorer);
  EXPECT_EQ(ranking(scores), (std::vector<std::uint32_t>{0, 1, 5, 4, 3, 2}));
}

TEST(KvZip, RanksSinksThenByTheLargestAttention) {
  const std::vector<float> attention = {0, 0, 0.25f, 1, 0.125f, 0.5f, 1, 1, 1, 1, 0, 1};  // [2 heads][6]
  const LayerKv<Half>::Page pages[2] = {};                                                // nothing of them is read
  LayerKv<Half> layer{
      .tokens = 6, .kv_heads = 2, .head_dim = 32, .block_size = 8, .pages = pages, .repeat_attention = attention};
  std::vector<float> scores(12);
  make_scorer("kvzip", {.sinks = 2}).value()->score(layer, scores);
  EXPECT_EQ(ranking(std::span(scores).first(6)), (std::vector<std::uint32_t>{1, 0, 3, 5, 2, 4}));
  EXPECT_EQ(ranking(std::span(scores).last(6)), (std::vector<std::uint32_t>{1, 0, 5, 3, 2, 4}));
  make_scorer("kvzip", {.sinks = 99}).value()->score(layer, scores);
  for (const float score : scores) EXPECT_EQ(score, scores[0]);
}

}  // namespace
}  // namespace shale
