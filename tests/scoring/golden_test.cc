// Scores against numbers of the reference library kvpress 0.5.5 (fp32, a small random model).
#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "scoring/budgets/budget.h"
#include "scoring/paged_layer.h"
#include "support/simd_targets.h"
#include "support/test_data.h"

namespace shale {
namespace {

constexpr double kTolerance = 1e-4;  // of the largest magnitude

class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    ggml_context* context = nullptr;
    const std::string path = test_data() / "golden" / "scorers.gguf";
    gguf_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &context}));
    ASSERT_NE(gguf_, nullptr) << path;
    context_.reset(context);
  }

  std::vector<float> tensor(std::uint32_t layer, const std::string& name) const {
    const ggml_tensor* tensor = ggml_get_tensor(context_.get(), ("l" + std::to_string(layer) + "." + name).c_str());
    if (!tensor || tensor->type != GGML_TYPE_F32) ADD_FAILURE() << name << " is missing";
    const float* data = ggml_get_data_f32(tensor);
    return {data, data + ggml_nelements(tensor)};
  }
  std::uint32_t number(const char* key) const { return gguf_get_val_u32(gguf_.get(), gguf_find_key(gguf_.get(), key)); }

  std::vector<std::uint32_t> numbers(const char* key) const {
    const std::int64_t id = gguf_find_key(gguf_.get(), key);
    const auto* first = static_cast<const std::uint32_t*>(gguf_get_arr_data(gguf_.get(), id));
    return {first, first + gguf_get_arr_n(gguf_.get(), id)};
  }

  LayerRows rows(std::uint32_t layer) const {
    LayerRows rows{.tokens = number("tokens"),
                   .kv_heads = number("kv_heads"),
                   .head_dim = number("head_dim"),
                   .query_heads = number("query_heads"),
                   .layer = layer};
    rows.keys = tensor(layer, "k");
    rows.values = tensor(layer, "v");
    rows.queries = tensor(layer, "q");
    rows.window_tokens = rows.tokens;
    rows.rope.dimensions = rows.head_dim;
    return rows;
  }

  void expect_scores(const char* name) const {
    const auto scorer = make_scorer(name);
    ASSERT_TRUE(scorer);
    for (std::uint32_t layer = 0; layer < number("layers"); ++layer) {
      const std::vector<float> expected = tensor(layer, std::string("score.") + name);
      float largest = 0;
      for (const float score : expected) largest = std::max(largest, std::abs(score));
      for (const std::uint32_t block_size : {8u, 16u, 64u}) {
        const std::vector<float> scores =
            PagedLayer<float>(rows(layer), block_size, (*scorer)->needs()).score(**scorer);
        ASSERT_EQ(scores.size(), expected.size());
        for (std::size_t i = 0; i < scores.size(); ++i) {
          ASSERT_NEAR(scores[i], expected[i], kTolerance * largest)
              << name << " layer " << layer << " score " << i << " block_size " << block_size;
        }
      }
    }
  }

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  std::unique_ptr<gguf_context, Free> gguf_;
  std::unique_ptr<ggml_context, Free> context_;
};

TEST_F(Golden, KNorm) {
  for_each_simd_target([&] { expect_scores("knorm"); });
}
TEST_F(Golden, KeyDiff) {
  for_each_simd_target([&] { expect_scores("keydiff"); });
}
TEST_F(Golden, SnapKv) {
  for_each_simd_target([&] { expect_scores("snapkv"); });
}

TEST_F(Golden, Tova) {
  for_each_simd_target([&] { expect_scores("tova"); });
}
TEST_F(Golden, ObservedAttention) {
  for_each_simd_target([&] { expect_scores("observed_attention"); });
}

TEST_F(Golden, StreamingKeepsTheSameSet) {
  const auto scorer = make_scorer("streaming");
  for (std::uint32_t layer = 0; layer < number("layers"); ++layer) {
    const PagedLayer<float> paged(rows(layer));
    const std::vector<float> scores = paged.score(**scorer), expected = tensor(layer, "score.streaming");
    const std::uint32_t tokens = paged.layer().tokens;
    for (std::uint32_t head = 0; head < paged.layer().kv_heads; ++head) {
      std::vector<float> kept(tokens, 0.0f);
      const auto order = ranking(std::span(scores).subspan(std::size_t{head} * tokens, tokens));
      for (std::uint32_t i = 0; i < kept_tokens(tokens, 0.5); ++i) kept[order[i]] = 1;
      for (std::uint32_t i = 0; i < tokens; ++i) ASSERT_EQ(kept[i], expected[std::size_t{head} * tokens + i]) << i;
    }
  }
}

// Ties, such as the window's own tokens, may fall either way: what is kept of each head, and its worth, must agree.
TEST_F(Golden, AdaKvKeepsAsMuch) {
  const auto scorer = make_scorer("snapkv");
  const auto budget = make_budget("adakv");
  const std::uint32_t tokens = number("tokens"), heads = number("kv_heads");
  for (std::uint32_t layer = 0; layer < number("layers"); ++layer) {
    const std::vector<float> scores = PagedLayer<float>(rows(layer)).score(**scorer);
    for (const double keep : {0.5, 0.75}) {
      const std::vector<float> expected = tensor(layer, fmt::format("kept.adakv_snapkv.{}", keep));
      const Kept kept = (*budget)->select({1, heads, tokens, scores}, keep, 64);
      for (std::uint32_t head = 0; head < heads; ++head) {
        double count = 0, expected_count = 0, worth = 0, expected_worth = 0;
        for (std::size_t i = std::size_t{head} * tokens; i < std::size_t{head + 1} * tokens; ++i) {
          count += kept[i];
          expected_count += expected[i];
          worth += kept[i] * scores[i];
          expected_worth += expected[i] * scores[i];
        }
        EXPECT_EQ(count, expected_count) << "layer " << layer << " head " << head << " keep " << keep;
        EXPECT_NEAR(worth, expected_worth, kTolerance * expected_worth);
      }
    }
  }
}

TEST_F(Golden, PyramidKeepsAsMany) {
  const auto budget = make_budget("pyramid");
  const std::uint32_t tokens = number("tokens"), heads = number("kv_heads"), layers = number("layers");
  const std::vector<float> scores(std::size_t{layers} * heads * tokens);
  for (const double keep : {0.5, 0.75}) {
    const std::vector<std::uint32_t> expected = numbers(fmt::format("pyramid_budget_window8.{}", keep).c_str());
    ASSERT_EQ(expected.size(), layers);
    const Kept kept = (*budget)->select({layers, heads, tokens, scores}, keep, 8);
    for (std::uint32_t head = 0; head < layers * heads; ++head) {
      EXPECT_EQ(std::ranges::count(std::span(kept).subspan(std::size_t{head} * tokens, tokens), 1),
                expected[head / heads]);
    }
  }
}

}  // namespace
}  // namespace shale
