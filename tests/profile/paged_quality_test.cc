#include "profile/paged_quality.h"

#include <gtest/gtest.h>

#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

class PagedQualityTest : public ::testing::Test {
 protected:
  void SetUp() override { bench_.open_tiny(); }
  Result<PagedQualities> measure(std::vector<KvBudgetOptions> budgets, std::uint32_t tokens = 40) {
    return measure_paged_quality(
        *bench_.model, *bench_.tokenizer, *bench_.pool, prompt_,
        {.budgets = std::move(budgets), .answer_tokens = tokens, .span_tokens = 16, .ignore_end = true, .scorers = {}});
  }

  testing::EngineBench bench_;
  std::vector<Token> prompt_ = testing::random_tokens(150, 256, 4);
};

TEST_F(PagedQualityTest, ABudgetForEverythingIsTheFullCache) {
  for (const BudgetPrefill prefill : {BudgetPrefill::kWhole, BudgetPrefill::kChunked}) {
    const auto found =
        measure({{.tokens = 256, .method = "h2o", .prefill = prefill}, {.tokens = 256, .prefill = prefill}});
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->answer.size(), 40u);
    for (const PagedQuality& one : found->budgets) {
      EXPECT_EQ(one.forced.agreement, 1);
      EXPECT_LT(one.forced.kl, 1e-6);
      EXPECT_EQ(one.answer, found->answer);
      EXPECT_EQ(one.along.size(), 3u);  // 16 + 16 + 8
      EXPECT_EQ(one.stats.paging.tokens_dropped, 0u);
    }
  }
}

TEST_F(PagedQualityTest, LessIsFartherAndMethodsDoNotTouchEachOther) {
  const std::vector<KvBudgetOptions> budgets = {{.tokens = 128, .method = "snapkv", .interval = 16},
                                                {.tokens = 16, .method = "random", .interval = 16},
                                                {.tokens = 32, .method = "h2o", .interval = 16}};
  const auto together = measure(budgets);
  ASSERT_TRUE(together) << together.error().message;
  EXPECT_LT(together->budgets[0].forced.kl, together->budgets[1].forced.kl);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    const auto alone = measure({budgets[i]});
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->answer, together->answer);
    EXPECT_NEAR(alone->budgets[0].forced.kl, together->budgets[i].forced.kl, 1e-4) << budgets[i].method;
    EXPECT_EQ(alone->budgets[0].stats.paging.tokens_dropped, together->budgets[i].stats.paging.tokens_dropped);
  }
  EXPECT_EQ(bench_.pool->blocks_free(), bench_.pool->blocks_total());
}

// rkv reads eight queries, whatever window other scorers are given.
TEST_F(PagedQualityTest, WatchesAsManyQueriesAsAMethodReads) {
  const auto kl = [&](std::uint32_t window) {
    const auto found = measure_paged_quality(*bench_.model, *bench_.tokenizer, *bench_.pool, prompt_,
                                             {.budgets = {{.tokens = 48, .method = "rkv", .interval = 16}},
                                              .answer_tokens = 40,
                                              .ignore_end = true,
                                              .scorers = {.window = window}});
    return found.value().budgets[0].forced.kl;
  };
  EXPECT_EQ(kl(2), kl(24));
}

TEST_F(PagedQualityTest, ComparesInt8PagesWithHalves) {
  const PageShape shape = bench_.pool->shape().with(PageElement::kInt8);
  const auto int8 = PagePool::create(shape, 64 * shape.block_bytes()).value();
  const auto found = measure_paged_quality(
      *bench_.model, *bench_.tokenizer, *int8, prompt_,
      {.budgets = {{.tokens = 0}, {.tokens = 256, .method = "h2o"}, {.tokens = 32, .method = "h2o", .interval = 16}},
       .answer_tokens = 40,
       .ignore_end = true,
       .scorers = {},
       .reference = bench_.pool.get()});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->answer, measure({})->answer);
  const Divergence& full = found->budgets[0].forced;
  EXPECT_GE(full.agreement, 0.9);
  EXPECT_GT(full.kl, 0);
  EXPECT_LT(full.kl, 1e-3);
  EXPECT_NEAR(found->budgets[1].forced.kl, full.kl, 1e-5);  // a budget for everything
  EXPECT_GT(found->budgets[2].forced.kl, 10 * full.kl);
}

TEST_F(PagedQualityTest, RefusesWhatBudgetsRefuse) {
  EXPECT_EQ(measure({{.tokens = 64, .method = "kvzip"}}).error().code, ErrorCode::kInvalidArgument);
  prompt_.clear();
  EXPECT_EQ(measure({}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
