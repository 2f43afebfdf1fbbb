// A prefix is computed from its front while a slow tier brings its back.
#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"

namespace shale {
namespace {

using testing::LoadingTest;

// Over a tier that takes almost as long as computing, which is guessed to be 200 tokens a second.
class MeetingLoadTest : public LoadingTest {
 protected:
  MeetingLoadTest() {
    engine_.reset();
    cache_.reset();
    const double token_bytes = static_cast<double>(model_->page_shape().token_bytes());
    const Throttle slow{"slow", 1e-4, 240 * token_bytes, 1e12};
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_throttled_tier(make_memory_tier(tier_bytes_, time_), slow, time_);
    tiers[0].tier->expect({slow.latency_s, slow.read_bytes_per_s, slow.write_bytes_per_s});
    CacheOptions options;
    options.model = model_->info().traits();
    options.chunk_tokens = 64;
    cache_ = Cache::open(std::move(options), {model_->fingerprint(), "tiny"}, *pool_, std::move(tiers), nullptr, time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128}, *model_, tokenizer_,
                                       *cache_, time_);
  }
};

TEST_F(MeetingLoadTest, APrefixIsComputedFromItsFrontAndLoadedFromItsBack) {
  const Request request = ask(1, 512, 1);
  const Response cold = engine_->run(request);
  ASSERT_FALSE(cold.error);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  const Response met = engine_->run(request);
  ASSERT_FALSE(met.error);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_FALSE(met.lossy);
  EXPECT_GE(met.cached.from("memory"), 64u);
  EXPECT_LE(met.cached.from("memory"), 448u);
  EXPECT_EQ(met.tokens, cold.tokens);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

TEST_F(MeetingLoadTest, ForWhoDemandsExactnessToo) {
  Request request = ask(1, 512, 1);
  request.policy.exact = true;
  const Response cold = engine_->run(request);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  const Response met = engine_->run(request);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(met.tokens, cold.tokens);
}

// Its front is ragged once it has dropped tokens: what came of its back cannot join it.
TEST_F(MeetingLoadTest, WhatDropsTokensComputesTheRest) {
  Request request = ask(1, 512, 1);
  ASSERT_FALSE(engine_->run(request).error);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  request.budget = KvBudgetOptions{.tokens = 64, .method = "knorm", .prefill = BudgetPrefill::kChunked, .interval = 32};
  const Response dropped = engine_->run(request);
  ASSERT_FALSE(dropped.error) << dropped.error->message;
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(dropped.cached.total(), 0u);
  const Status sound = pool_->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

TEST_F(MeetingLoadTest, CancellingReturnsWhatWasAsked) {
  ASSERT_FALSE(engine_->run(ask(1, 512, 1)).error);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  const RequestId id = engine_->submit(ask(1, 512, 2)).value();
  ASSERT_TRUE(engine_->run_once());
  ASSERT_TRUE(engine_->run_once());
  EXPECT_EQ(cache_->stats().meetings, 1u);
  engine_->cancel(id);
  while (engine_->run_once()) {
  }
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

// As that of a server that has run for a while.
TEST_F(MeetingLoadTest, InAPoolFullOfOtherPrefixesToo) {
  const Request request = ask(1, 512, 1);
  ASSERT_FALSE(engine_->run(request).error);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  {
    Sequence other(*pool_);
    const std::uint32_t tokens = pool_->blocks_total() * pool_->shape().block_size;
    ASSERT_TRUE(other.append(tokens));
    cache_->insert_prefix(testing::random_tokens(tokens, 256, 9), other, kAllTokens, "");
  }
  ASSERT_EQ(pool_->blocks_free(), 0u);
  const Response met = engine_->run(request);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_GE(met.cached.from("memory"), 64u);
}

}  // namespace
}  // namespace shale
