#include "profile/rate_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/extent.h"
#include "codec/views/sequence_view.h"

namespace shale {
namespace {

// Random KV in which each head attends to tokens of its own, more or less sharply.
class RatePlanTest : public ::testing::Test {
 protected:
  static constexpr PageShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 32, .block_size = 16};
  static constexpr std::uint32_t kTokens = 208, kQueryHeads = 4, kWindow = 3;

  RatePlanTest() : pool_(std::move(*PagePool::create(kShape, 20 * kShape.block_bytes()))), sequence_(*pool_) {
    std::normal_distribution<float> normal;
    EXPECT_TRUE(sequence_.append(kTokens));
    for (std::uint32_t head = 0; head < kShape.pages_per_block(); ++head) {
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        const auto place = sequence_.appended(head / 2, head % 2, token, kTokens);
        const MutablePageView page = pool_->host_view().writable_page(place.page);
        for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
          const float key = normal(random_) * static_cast<float>(1 + head);
          page.keys[std::size_t{c} * kShape.block_size + place.slot] = to_half(key);
          page.values[std::size_t{place.slot} * kShape.head_dim + c] = to_half(normal(random_));
        }
      }
    }
    queries_.resize(std::size_t{kShape.layers} * kQueryHeads * kWindow * kShape.head_dim);
    for (float& query : queries_) query = normal(random_);
    scores_.resize(std::size_t{kShape.pages_per_block()} * kTokens);
    for (float& score : scores_) score = normal(random_);
  }
  Result<RatePlan> plan(std::uint64_t bytes, const std::vector<std::string>& budgets = {"uniform"}) {
    const RankedContext context{.sequence = &sequence_,
                                .scorer = "knorm",
                                .scores = scores_,
                                .queries = queries_,
                                .query_heads = kQueryHeads,
                                .window = kWindow,
                                .model = {.windows = windows_, .attention_scale = attention_scale_}};
    return plan_rate(context, quantizers_, budgets, bytes, executor_);
  }
  // What storing what was planned takes, ranked by knorm: blobs, and the ranking that stands in the manifest.
  std::uint64_t stored_bytes(const RatePlan& planned) {
    const KvView view = readable(view_of(sequence_, 0, kTokens));
    const AttentionStatistics nothing;
    auto ranker = RunRanker::start(view, planned.method.ranking(), 0, {}, nothing, {.windows = windows_}).value();
    while (ranker.step(executor_)) {
    }
    ExtentManifest identity;
    identity.geometry = view.geometry;
    identity.method = planned.method;
    identity.tokens = kTokens;
    identity.keys.resize(view.blocks());
    identity.windows = windows_;
    auto encoder = ExtentEncoder::start(view, identity, {ranker.finish()}).value();
    while (encoder.step(executor_)) {
    }
    const ExtentManifest stored = encoder.finish().manifest;
    return stored.bytes_for(planned.keep) + TierMap::bytes_of(kShape.pages_per_block(), kTokens);
  }
  // As the scorer knorm ranks.
  void rank() {
    for (std::uint32_t head = 0; head < kShape.pages_per_block(); ++head) {
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        const auto place = sequence_.appended(head / 2, head % 2, token, kTokens);
        const PageView page = pool_->host_view().page(place.page);
        float squares = 0;
        for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
          const float key = to_float(page.keys[std::size_t{c} * kShape.block_size + place.slot]);
          squares += key * key;
        }
        scores_[std::size_t{head} * kTokens + token] = -std::sqrt(squares);
      }
    }
  }

  std::mt19937 random_{1};
  std::unique_ptr<PagePool> pool_;
  Sequence sequence_;
  std::vector<float> queries_, scores_;
  std::vector<std::uint32_t> windows_;
  float attention_scale_ = 0;
  std::vector<std::string> quantizers_ = {"none", "int8", "kivi4", "layered2"};
  InlineExecutor executor_;
};

TEST_F(RatePlanTest, SpendsItsBudgetAndBudgetsByHeadSpendItBetter) {
  double last = 1;
  for (const double share : {0.06, 0.1, 0.2, 0.4, 0.8}) {
    SCOPED_TRACE(share);
    const auto budget = static_cast<std::uint64_t>(share * static_cast<double>(kTokens * kShape.token_bytes()));
    const auto planned = plan(budget);
    ASSERT_TRUE(planned) << planned.error().message;
    EXPECT_LE(planned->object.bytes, budget);
    EXPECT_LE(planned->per_head.bytes, budget);
    EXPECT_LE(planned->object.predicted, last);
    EXPECT_LE(planned->per_head.predicted, planned->object.predicted + 0.05);
    EXPECT_GE(planned->object.predicted, 0);
    EXPECT_LE(planned->object.measured, 2 * planned->object.predicted + 1e-6) << "predictions are bounds, about";
    last = planned->object.predicted;
  }
}

TEST_F(RatePlanTest, MeasuresAtTheModelsScale) {
  attention_scale_ = 2 / std::sqrt(float{kShape.head_dim});
  const double scaled = plan(40000).value().object.measured;
  attention_scale_ = 0;
  for (float& query : queries_) query *= 2;
  EXPECT_NEAR(scaled, plan(40000).value().object.measured, 1e-5 * scaled);
}

TEST_F(RatePlanTest, BytesAreThoseOfWhatIsStored) {
  const auto planned = plan(kTokens * kShape.token_bytes() / 5);
  ASSERT_TRUE(planned);
  EXPECT_EQ(stored_bytes(*planned), planned->object.bytes);
}

// Of such a layer extents keep every token, whatever the keep: only the other layers' bytes can be saved.
TEST_F(RatePlanTest, KeepsLayersWithAWindowWhole) {
  rank();
  windows_ = {32, 0};
  scores_.erase(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(scores_.size() / 2));
  quantizers_ = {"none"};
  const std::uint64_t full = kTokens * kShape.token_bytes();
  EXPECT_EQ(plan(full / 2).error().code, ErrorCode::kInvalidArgument);
  for (const std::string budget : {"uniform", "global"}) {
    const auto planned = plan(full * 3 / 4, {budget});
    ASSERT_TRUE(planned) << planned.error().message;
    EXPECT_LE(planned->object.bytes, full * 3 / 4);
    EXPECT_NEAR(static_cast<double>(stored_bytes(*planned)), static_cast<double>(planned->object.bytes),
                0.01 * static_cast<double>(full));
    EXPECT_LE(planned->per_head.bytes, full * 3 / 4);
    EXPECT_EQ(planned->heads.front(), Precision{0}) << "one tier, of all tokens";
  }
  EXPECT_GT(plan(full * 9 / 10)->per_head.predicted, 0) << "the other layer's heads have four fifths of theirs";
}

// Heads of small keys attend evenly, those of large ones sharply: what is kept is better spread unevenly.
TEST_F(RatePlanTest, SpreadsTokensOverHeadsWhereThatIsBetter) {
  rank();
  const std::uint64_t bytes = kTokens * kShape.token_bytes() / 8;
  const double uniform = plan(bytes)->object.predicted;
  for (const std::string budget : {"adakv", "global", "pyramid"}) {
    const auto alone = plan(bytes, {budget});
    ASSERT_TRUE(alone) << alone.error().message;
    EXPECT_EQ(alone->method.budget, budget);
    EXPECT_LE(alone->object.bytes, bytes);
    EXPECT_NEAR(static_cast<double>(stored_bytes(*alone)), static_cast<double>(alone->object.bytes),
                0.02 * static_cast<double>(bytes))
        << "but for ties of rounded scores";
  }
  const auto best = plan(bytes, {"uniform", "adakv", "global"});
  ASSERT_TRUE(best);
  EXPECT_LE(best->object.predicted, uniform);
  EXPECT_EQ(best->object.predicted,
            std::min({uniform, plan(bytes, {"adakv"})->object.predicted, plan(bytes, {"global"})->object.predicted}));
}

TEST_F(RatePlanTest, KeepsEverythingWhereThereIsRoom) {
  const auto planned = plan(2 * kTokens * kShape.token_bytes());
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->method.text(), "knorm");
  EXPECT_EQ(planned->keep, 1);
  EXPECT_EQ(planned->object.predicted, 0);
  EXPECT_NEAR(planned->object.measured, 0, 1e-6);
  ASSERT_EQ(planned->errors.size(), 4u);
  EXPECT_EQ(planned->errors[0].position.keys, 0);
  EXPECT_LT(planned->errors[1].position.keys, planned->errors[3].position.keys);
}

TEST_F(RatePlanTest, TakesWholeBlocksAlone) {
  sequence_.truncate(kTokens - 1);
  EXPECT_EQ(plan(1 << 20).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RatePlanTest, SaysWhatIsMissing) {
  EXPECT_EQ(plan(10).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(plan(1 << 20, {"nope"}).error().code, ErrorCode::kInvalidArgument);
  quantizers_ = {"nope"};
  EXPECT_EQ(plan(1 << 20).error().code, ErrorCode::kInvalidArgument);
  quantizers_ = {"int8"};
  queries_.clear();
  EXPECT_EQ(plan(1 << 20).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
