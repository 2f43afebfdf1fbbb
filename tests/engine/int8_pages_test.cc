// Engines whose pool holds int8, and what becomes of what they store.
#include <gmock/gmock.h>

#include <vector>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;

class Int8PagesTest : public EngineTest {
 protected:
  Int8PagesTest() { hold(PageElement::kInt8); }
};

TEST_F(Int8PagesTest, NoAnswerIsExactAndNoneMayBeAskedFor) {
  const Response answer = engine_->run(ask(1, 150, 1));
  ASSERT_FALSE(answer.error) << answer.error->message;
  EXPECT_TRUE(answer.lossy);
  Request exact = ask(1, 150, 1);
  exact.policy.exact = true;
  const Response refused = engine_->run(std::move(exact));
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error->message, ::testing::HasSubstr("start with fp16 pages"));
}

TEST_F(Int8PagesTest, PrefixesAreSharedAndComeBackFromDiskWithTheSameAnswer) {
  const Response cold = engine_->run(ask(1, 150, 1));
  const Response warm = engine_->run(ask(1, 150, 1));
  EXPECT_EQ(warm.cached.from("pool"), 158u);
  EXPECT_EQ(warm.tokens, cold.tokens);
  drain();
  open();
  const Response restarted = engine_->run(ask(1, 150, 1));
  EXPECT_EQ(restarted.cached.from("disk"), 144u);
  EXPECT_EQ(restarted.tokens, cold.tokens);
  EXPECT_TRUE(restarted.lossy);
}

// On one folder: neither finds what the other stored, and both find their own again.
TEST_F(Int8PagesTest, WhatIsStoredIsNeverTakenForExact) {
  const Response int8 = engine_->run(ask(1, 150, 1));
  drain();
  hold(PageElement::kHalf);
  Request exact = ask(1, 150, 1);
  exact.policy.exact = true;
  const Response half = engine_->run(exact);
  EXPECT_EQ(half.cached.total(), 0u);
  EXPECT_FALSE(half.lossy);
  drain();
  hold(PageElement::kInt8);
  const Response again = engine_->run(ask(1, 150, 1));
  EXPECT_EQ(again.cached.from("disk"), 144u);
  EXPECT_EQ(again.tokens, int8.tokens);
  drain();
  hold(PageElement::kHalf);
  const Response exact_again = engine_->run(exact);
  EXPECT_EQ(exact_again.cached.from("disk"), 144u);
  EXPECT_EQ(exact_again.tokens, half.tokens);
}

TEST_F(Int8PagesTest, MethodsMayBeNamedForWhatIsStored) { expect_named_methods_restart(false); }

TEST_F(Int8PagesTest, TheSameBytesHoldNearlyTwiceAsManyTokens) {
  const PageShape halves = pool_->shape().with(PageElement::kHalf);
  const auto twin = PagePool::create(halves, pool_->blocks_total() * pool_->shape().block_bytes()).value();
  EXPECT_NEAR(static_cast<double>(pool_->blocks_total()) / twin->blocks_total(), 32.0 / 17, 0.02);
}

TEST_F(Int8PagesTest, BudgetsKeepPagesFlatWhateverTheMethod) {
  for (const char* method : {"paged_eviction", "knorm", "h2o", "snapkv", "adakv:keydiff"}) {
    Request request = generate(7, 100, 200);
    request.budget = KvBudgetOptions{.tokens = 64, .method = method, .interval = 32};
    const Response answer = engine_->run(request);
    ASSERT_FALSE(answer.error) << method << ": " << answer.error->message;
    EXPECT_GE(answer.budget.paging.tokens_dropped, (300 - 64 - 32 - 16) * pool_->shape().pages_per_block()) << method;
    EXPECT_EQ(engine_->run(request).tokens, answer.tokens) << method;
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total()) << method;
  }
}

TEST_F(Int8PagesTest, CompactionDoesNotChangeTheAnswer) {
  Request request = generate(7, 100, 200);
  std::vector<std::vector<Token>> answers;
  for (const Compaction how : {Compaction::kNone, Compaction::kRepack, Compaction::kHoleFill}) {
    request.budget = KvBudgetOptions{.tokens = 64, .method = "streaming", .interval = 32, .compaction = how};
    answers.push_back(engine_->run(request).tokens);
  }
  EXPECT_THAT(answers, ::testing::Each(answers[0]));
}

TEST_F(Int8PagesTest, RunsThatMadeRoomGoOnWithTheSameBytes) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) requests.push_back(generate(i, 100 + 10 * i, 200));
  requests[1].budget = KvBudgetOptions{.tokens = 64, .method = "h2o", .interval = 32};
  std::vector<std::vector<Token>> alone(1), together(5);
  for (const Request& request : requests) alone.push_back(engine_->run(request).tokens);
  open(40);  // three of them need 20 blocks each at their ends
  for (const Request& request : requests) ASSERT_TRUE(engine_->submit(request));
  const auto answered = [&] { return std::ranges::count_if(together, [](const auto& each) { return !each.empty(); }); };
  while (answered() < 4) {
    engine_->run_once();
    for (const Response& response : engine_->finished()) {
      ASSERT_FALSE(response.error) << response.error->message;
      together[response.id] = response.tokens;  // a new engine counts from 1
    }
  }
  EXPECT_EQ(together, alone);
  EXPECT_GT(engine_->stats().preempted, 0u);
  EXPECT_EQ(engine_->stats().computed_again, 0u);
}

}  // namespace
}  // namespace shale
