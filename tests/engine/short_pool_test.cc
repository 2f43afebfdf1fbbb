// Who gets pages where the pool is short and a tier takes its time.
#include <gmock/gmock.h>

#include <vector>

#include "engine/block_manager.h"
#include "engine/loading_fixture.h"
#include "engine/storing.h"

namespace shale {
namespace {

using testing::LoadingTest;

// The bytes of the first, which its tier does not bring, hold up those of the second no longer than until they are
// late.
TEST_F(LoadingTest, APreemptedRunWhoseBytesAreLateHoldsUpNoOther) {
  tier_bytes_ = 4 * model_->page_shape().block_bytes();  // for the smaller of the two
  open_over_tier(20);
  const auto submit = [&](std::size_t prompt, std::uint32_t tokens, std::uint32_t budget) {
    Request request = generate(static_cast<std::uint32_t>(prompt), prompt, tokens);
    request.ignore_end = true;
    if (budget > 0) request.budget = KvBudgetOptions{.tokens = budget, .method = "streaming", .interval = 16};
    return engine_->submit(std::move(request)).value();
  };
  const RequestId first = submit(100, 190, 0), on_tier = submit(20, 260, 16), in_memory = submit(64, 260, 64);
  while (engine_->preempted() < 2) ASSERT_TRUE(engine_->run_once());
  ASSERT_GT(tier_->used_bytes(), 0u);
  tier_->set_silent(true);
  std::vector<RequestId> finished;
  for (std::size_t rounds = 0; finished.size() < 3; ++rounds) {
    ASSERT_LT(rounds, 5000u);
    EXPECT_TRUE(engine_->run_once() || engine_->preempted() == 0) << "there is something to do";
    if (engine_->running() == 0) time_.advance(1);
    for (const Response& response : engine_->finished()) {
      finished.push_back(response.id);
      EXPECT_EQ(response.error.has_value(), response.id == on_tier);
    }
  }
  EXPECT_THAT(finished, ::testing::ElementsAre(first, in_memory, on_tier));
}

TEST_F(LoadingTest, WhatIsLoadedComesBeforeWhatWaitsToBeStored) {
  open_over_tier(30);
  static_cast<void>(stored_answer(1));
  {
    const std::vector<Token> tokens = testing::random_tokens(20 * 16, 256, 7);
    Sequence computed(*pool_);
    ASSERT_TRUE(computed.append(20 * 16));
    cache_->store({.tokens = tokens}, computed);
  }
  ASSERT_LT(pool_->blocks_free() + cache_->blocks_evictable(), 12u);
  EXPECT_EQ(engine_->run(ask(1, 200, 2)).cached.from("memory"), 192u);
  EXPECT_EQ(cache_->stats().given_up, 1u);
}

TEST_F(LoadingTest, NothingIsGivenUpForBlocksThatItWouldNotLeaveFree) {
  open_over_tier(30);
  Storing storing(*model_, tokenizer_, *cache_);
  BlockManager blocks(*cache_, storing, model_->info(), 128);
  {
    const std::vector<Token> tokens = testing::random_tokens(20 * 16, 256, 7);
    Sequence computed(*pool_);
    ASSERT_TRUE(computed.append(20 * 16));
    cache_->store({.tokens = tokens}, computed);
  }
  Sequence others(*pool_);
  ASSERT_TRUE(others.append(6 * 16));
  EXPECT_FALSE(blocks.ensure_free(25));
  EXPECT_EQ(cache_->stats().given_up, 0u);
  EXPECT_TRUE(blocks.ensure_free(24));
  EXPECT_EQ(cache_->stats().given_up, 1u);
}

}  // namespace
}  // namespace shale
