// A model whose logits are not divided by the root of its head dimension, as those of the largest Gemma 3.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "codec/views/sequence_pages.h"
#include "codec/views/view_layer.h"
#include "engine/cached_layer.h"
#include "model/capture.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

constexpr std::uint32_t kFullLayer = 5, kTokens = 60;

class AttentionScaleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = folder_.path() / "tiny.gguf";
    testing::write_tiny_model(testing::model_of_another_scale(), path);
    runner_ = std::make_unique<testing::ModelRunner>(path);
  }
  Model& model() { return runner_->model(); }

  // The prompt, of which the captures watch the last token alone.
  Sequence compute(Capture* capture, LiveCapture* live) {
    Sequence sequence = runner_->sequence();
    const std::vector<Token> tokens = testing::random_tokens(kTokens, 256, 3);
    for (const std::uint32_t first : {0u, kTokens - 1}) {
      const auto part = std::span(tokens).subspan(first, first == 0 ? kTokens - 1 : 1);
      EXPECT_TRUE(sequence.append(static_cast<std::uint32_t>(part.size())));
      const StepSequence step{.sequence = &sequence,
                              .tokens = part,
                              .logits_none = true,
                              .capture = first == 0 ? nullptr : capture,
                              .live = first == 0 ? nullptr : live};
      EXPECT_TRUE(model().step({&step, 1}));
    }
    return sequence;
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<testing::ModelRunner> runner_;
  const std::unique_ptr<Scorer> tova_ = make_scorer("tova").value();
};

TEST_F(AttentionScaleTest, IsTheModels) {
  EXPECT_FLOAT_EQ(model().info().attention_scale, 1 / std::sqrt(64.0f));  // 128 / 2
  EXPECT_EQ(model().info().traits().attention_scale, model().info().attention_scale);
}

// The last query's attention, recomputed from it, is what the model's own attention paid.
TEST_F(AttentionScaleTest, ScorersSeeTheModelsAttention) {
  LiveCapture live(model().info(), 1, true);
  Sequence sequence = compute(nullptr, &live);
  sequence.part();
  live.settle(sequence);
  std::vector<float> scores(kTokens);
  CachedLayer(sequence, kFullLayer, model().info(), &live, nullptr).score(*tova_, scores, kTokens);
  const std::span<const float> paid = sequence.notes(kFullLayer, 0);
  for (std::uint32_t i = 0; i + 1 < kTokens; ++i) EXPECT_NEAR(scores[i], paid[i], 1e-3 * paid[i] + 1e-5) << i;
}

TEST_F(AttentionScaleTest, OfAContextAsOfALiveSequence) {
  LiveCapture live(model().info(), 1, false);
  Capture capture(model().info(), kTokens - 1, 1, {.last_queries = 1});
  Sequence sequence = compute(&capture, &live);
  AttentionStatistics statistics = capture.take();
  statistics.tokens = kTokens;  // whose last query was watched
  std::vector<float> stored(kTokens), cached(kTokens);
  {
    const SequencePages pages(sequence, kTokens, model().executor());
    const ViewLayer layer(pages->heads(kFullLayer), pages->shape(), kTokens, kFullLayer, 0, model().info().traits(),
                          statistics);
    tova_->score(layer.kv(), stored);
  }
  sequence.part();
  CachedLayer(sequence, kFullLayer, model().info(), &live, nullptr).score(*tova_, cached, kTokens);
  for (std::uint32_t i = 0; i < kTokens; ++i) EXPECT_NEAR(stored[i], cached[i], 1e-3 * cached[i]) << i;
}

}  // namespace
}  // namespace shale
