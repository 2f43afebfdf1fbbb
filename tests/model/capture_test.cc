// What a capture gathers, against plain twins that read queries, pages and positions.
#include "model/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "model/architectures/architecture.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using testing::ModelRunner;
using testing::random_tokens;

constexpr ScorerNeeds kEverything = {
    .last_queries = 64, .attention_sums = true, .query_moments = true, .repeat_attention = true};

struct CaptureBench {
  const ModelInfo& info() { return runner_->model().info(); }

  // Appends tokens in steps of `chunk`, watched by the capture.
  Status compute(Sequence& sequence, std::span<const Token> tokens, std::size_t chunk, Capture& capture,
                 StepHooks* hooks = nullptr) {
    for (; !tokens.empty(); tokens = tokens.subspan(std::min(chunk, tokens.size()))) {
      const auto part = tokens.first(std::min(chunk, tokens.size()));
      SHALE_TRY(sequence.append(static_cast<std::uint32_t>(part.size())));
      const StepSequence step{.sequence = &sequence, .tokens = part, .logits_none = true, .capture = &capture};
      SHALE_TRY(runner_->model().step({&step, 1}, hooks));
    }
    return {};
  }

  AttentionStatistics observe(std::span<const Token> tokens, std::size_t chunk, const ScorerNeeds& needs) {
    Sequence sequence = runner_->sequence();
    Capture capture(info(), 0, static_cast<std::uint32_t>(tokens.size()), needs);
    EXPECT_TRUE(compute(sequence, tokens, chunk, capture));
    return capture.take();
  }

  // softmax of query (layer, head, position) over the keys that it sees, of a sequence that holds position and more.
  std::vector<double> attention(const Sequence& sequence, const float* query, std::uint32_t layer, std::uint32_t head,
                                std::uint32_t position) {
    const HeadTable table = sequence.table(layer, head / (info().query_heads / info().kv_heads));
    const PageShape shape = runner_->model().page_shape();
    const std::uint32_t window = info().windows[layer];
    std::vector<double> weights(position + 1);
    double sum = 0;
    for (std::uint32_t i = window ? position - std::min(position, window - 1) : 0; i <= position; ++i) {
      const PageView page = sequence.pool().host_view().page(table.pages[i / shape.block_size].page);
      double dot = 0;
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
        dot += double{query[c]} * double{to_float(page.keys[c * shape.block_size + i % shape.block_size])};
      }
      sum += weights[i] = std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)));
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  static void expect_near(std::span<const float> got, std::span<const double> expected, double tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(double{got[i]}, expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
    }
  }

  // What every token of `all` receives from `again`, and that computed anew from queries and pages.
  std::pair<std::vector<float>, std::vector<double>> repetition(std::span<const Token> all,
                                                                std::span<const Token> again) {
    const auto tokens = static_cast<std::uint32_t>(all.size()), repeated = static_cast<std::uint32_t>(again.size());
    Sequence sequence = runner_->sequence();
    Capture capture(info(), 0, tokens, {.repeat_attention = true});
    EXPECT_TRUE(compute(sequence, all, 16, capture));
    Capture queries(info(), tokens, repeated, {.last_queries = repeated});
    Sequence watched = sequence.fork();
    EXPECT_TRUE(compute(watched, again, 13, queries));
    Sequence fork = sequence.fork();
    EXPECT_TRUE(compute(fork, again, 13, capture));
    const AttentionStatistics of_queries = queries.take(), seen = capture.take();
    EXPECT_TRUE(seen.consistent());

    std::vector<double> expected(seen.repeat_attention.size());
    for (std::uint32_t layer = 0; layer < info().layers; ++layer) {
      for (std::uint32_t head = 0; head < info().query_heads; ++head) {
        for (std::uint32_t i = 0; i < repeated; ++i) {
          const float* query =
              &of_queries.queries[((layer * info().query_heads + head) * repeated + i) * info().head_dim];
          const auto weights = attention(fork, query, layer, head, tokens + i);
          double* to = &expected[(layer * info().kv_heads + head / (info().query_heads / info().kv_heads)) * tokens];
          for (std::uint32_t t = 0; t < tokens; ++t) to[t] = std::max(to[t], weights[t]);
        }
      }
    }
    return {seen.repeat_attention, expected};
  }

  std::unique_ptr<ModelRunner> runner_;
};

class CaptureTest : public ::testing::TestWithParam<const Architecture*>, protected CaptureBench {
 protected:
  void SetUp() override {
    const auto path = folder_.path() / "tiny.gguf";
    testing::write_tiny_model({.architecture = std::string(GetParam()->name)}, path);
    runner_ = std::make_unique<ModelRunner>(path);
  }

  testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Architectures, CaptureTest, ::testing::ValuesIn(architectures()),
                         [](const auto& tested) { return std::string(tested.param->name); });

TEST_P(CaptureTest, KeepsTheQueriesOfTheLastTokensAcrossSteps) {
  const auto tokens = random_tokens(50, 320, 2);
  const AttentionStatistics all = observe(tokens, 50, {.last_queries = 400});
  EXPECT_EQ(all.window, 50u);
  EXPECT_EQ(all.given().last_queries, std::numeric_limits<std::uint32_t>::max());
  const AttentionStatistics last = observe(tokens, 7, {.last_queries = 20});
  ASSERT_TRUE(last.consistent());
  EXPECT_EQ(last.given().last_queries, 20u);
  const std::size_t dim = info().head_dim;
  for (std::size_t head = 0; head < std::size_t{info().layers} * info().query_heads; ++head) {
    for (std::size_t i = 0; i < 20 * dim; ++i) {
      ASSERT_NEAR(last.queries[head * 20 * dim + i], all.queries[(head * 50 + 30) * dim + i], 2e-3) << "head " << head;
    }
  }
}

TEST_P(CaptureTest, SumsTheAttentionThatEveryTokenOfTheSpanReceives) {
  const std::uint32_t before = 21, tokens = 75;  // a span in the middle of a page
  const auto all = random_tokens(before + tokens, 320, 3);
  Sequence sequence = runner_->sequence();
  Capture prefix(info(), 0, before, {});
  ASSERT_TRUE(compute(sequence, std::span(all).first(before), before, prefix));
  Capture capture(info(), before, tokens, {.last_queries = tokens, .attention_sums = true});
  ASSERT_TRUE(compute(sequence, std::span(all).subspan(before), 32, capture));
  const AttentionStatistics seen = capture.take();
  ASSERT_TRUE(seen.consistent());

  const std::uint32_t group = info().query_heads / info().kv_heads;
  std::vector<double> expected(seen.attention_sums.size());
  for (std::uint32_t layer = 0; layer < info().layers; ++layer) {
    for (std::uint32_t head = 0; head < info().query_heads; ++head) {
      for (std::uint32_t i = 0; i < tokens; ++i) {
        const float* query = &seen.queries[((layer * info().query_heads + head) * tokens + i) * info().head_dim];
        const auto weights = attention(sequence, query, layer, head, before + i);
        double* to = &expected[(layer * info().kv_heads + head / group) * tokens];
        for (std::uint32_t t = 0; t <= i; ++t) to[t] += weights[before + t] / group;
      }
    }
  }
  expect_near(seen.attention_sums, expected, 2e-3);  // the twin reads rounded queries
}

TEST_P(CaptureTest, GivesTheMomentsOfQueriesBeforeRotation) {
  const std::uint32_t tokens = 90;
  const auto all = random_tokens(tokens, 320, 4);
  const AttentionStatistics seen = observe(all, 32, {.last_queries = tokens, .query_moments = true});
  ASSERT_TRUE(seen.consistent());
  const std::size_t dim = info().head_dim, counted = tokens - kMomentSinks;
  std::vector<double> means, covariances;
  for (std::size_t head = 0; head < std::size_t{info().layers} * info().query_heads; ++head) {
    const Rope& rope = info().ropes[head / info().query_heads];
    std::vector<std::vector<double>> rows;
    for (std::uint32_t i = kMomentSinks; i < tokens; ++i) {
      const float* query = &seen.queries[(head * tokens + i) * dim];
      std::vector<double>& row = rows.emplace_back(query, query + dim);
      for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
        const auto [real, imaginary] = rope.channels(pair);
        const std::complex<double> turned =
            std::complex(row[real], row[imaginary]) * std::polar(1.0, -rope.frequency(pair) * i);
        row[real] = turned.real();
        row[imaginary] = turned.imag();
      }
    }
    std::vector<double> mean(dim);
    for (const auto& row : rows) {
      for (std::size_t c = 0; c < dim; ++c) mean[c] += row[c] / static_cast<double>(counted);
    }
    means.insert(means.end(), mean.begin(), mean.end());
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        double covariance = 0;
        for (const auto& row : rows) covariance += (row[i] - mean[i]) * (row[j] - mean[j]);
        covariances.push_back(covariance / static_cast<double>(counted));
      }
    }
  }
  expect_near(seen.query_mean, means, 1e-3);
  expect_near(seen.query_covariance, covariances, 3e-3);
}

TEST_P(CaptureTest, TakesStepsBeyondTheSpanAsItsRepetition) {
  const auto [got, expected] = repetition(random_tokens(40, 320, 5), random_tokens(30, 320, 6));
  expect_near(got, expected, 2e-3);
}

// Seven query heads a KV head, and biased keys so large that the twin's rounded queries move single elements.
TEST(CaptureOfARealModel, TakesStepsBeyondTheSpanAsItsRepetition) {
  const auto path = testing::real_model("qwen2.5-coder-0.5b");
  if (path.empty()) GTEST_SKIP() << "qwen2.5-coder-0.5b is not below SHALE_MODEL_DIR";
  CaptureBench bench;
  bench.runner_ = std::make_unique<ModelRunner>(path, ModelOptions{.weights = WeightChoice::kFile, .threads = 1});
  const auto all = random_tokens(40, 20'000, 7);
  const auto [got, expected] = bench.repetition(all, all);
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    errors += (got[i] - expected[i]) * (got[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.01);
}

TEST_P(CaptureTest, LeavesOutWhatAGapOrAFailedStepSpoils) {
  class Failing final : public StepHooks {
   public:
    Status before_attention(std::uint32_t layer) override {
      return layer == 1 ? fail(ErrorCode::kIo, "gone") : Status();
    }
  } failing;
  const auto tokens = random_tokens(100, 320, 7);
  const AttentionStatistics whole = observe(tokens, 20, kEverything);
  EXPECT_TRUE(whole.repeat_attention.empty()) << "nothing was repeated";

  Sequence sequence = runner_->sequence();
  Capture capture(info(), 0, 100, kEverything);
  ASSERT_TRUE(compute(sequence, std::span(tokens).first(20), 20, capture));
  ASSERT_FALSE(compute(sequence, std::span(tokens).subspan(20, 20), 20, capture, &failing));
  sequence.truncate(20);
  ASSERT_TRUE(compute(sequence, std::span(tokens).subspan(20), 20, capture));
  const AttentionStatistics spoilt = capture.take();
  ASSERT_TRUE(spoilt.consistent());
  EXPECT_EQ(spoilt.queries, whole.queries);
  EXPECT_TRUE(spoilt.attention_sums.empty() && spoilt.query_mean.empty());

  Capture late(info(), 0, 100, kEverything);
  sequence.truncate(60);
  ASSERT_TRUE(compute(sequence, std::span(tokens).subspan(60), 40, late));
  EXPECT_TRUE(late.take().empty()) << "40 of 64 queries were seen";

  Capture again(info(), 0, 100, kEverything);
  Sequence fresh = runner_->sequence();
  ASSERT_FALSE(compute(fresh, std::span(tokens).first(20), 20, again, &failing));
  fresh.clear();
  ASSERT_TRUE(compute(fresh, tokens, 20, again));
  const AttentionStatistics good = again.take();
  EXPECT_EQ(good.attention_sums, whole.attention_sums);
  EXPECT_EQ(good.query_covariance, whole.query_covariance);
}

}  // namespace
}  // namespace shale
