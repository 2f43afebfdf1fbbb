// A prefix is computed from its front while a slow tier brings its back.
#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"
#include "support/faulty_tier.h"

namespace shale {
namespace {

using testing::LoadingTest;

// Over a tier that takes almost as long as computing, which is guessed to be 200 tokens a second.
class MeetingLoadTest : public LoadingTest {
 protected:
  MeetingLoadTest() { open_slow({}); }

  void open_slow(testing::Faults faults) {
    auto tier = std::make_unique<testing::FaultyTier>(make_memory_tier(tier_bytes_, time_), std::move(faults), time_);
    open_meeting(make_throttled_tier(std::move(tier), slow_, time_));
  }
  void open_meeting(std::unique_ptr<Tier> tier) {
    engine_.reset();
    cache_.reset();
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = std::move(tier);
    tiers[0].tier->expect({slow_.latency_s, slow_.read_bytes_per_s, slow_.write_bytes_per_s});
    CacheOptions options;
    options.model = model_->info().traits();
    options.chunk_tokens = 64;
    cache_ = Cache::open(std::move(options), {model_->fingerprint(), "tiny"}, *pool_, std::move(tiers), nullptr, time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128}, *model_, tokenizer_,
                                       *cache_, time_);
  }

  // What it stores lies on the tier alone then.
  Response compute(const Request& request) {
    Response response = engine_->run(request);
    EXPECT_FALSE(response.error);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    return response;
  }
  void expect_pages_returned() {
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
  }

  const Throttle slow_{"slow", 1e-4, 240 * static_cast<double>(model_->page_shape().token_bytes()), 1e12};
};

TEST_F(MeetingLoadTest, APrefixIsComputedFromItsFrontAndLoadedFromItsBack) {
  const Request request = ask(1, 512, 1);
  const Response cold = compute(request);
  const Response met = engine_->run(request);
  ASSERT_FALSE(met.error);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_FALSE(met.lossy);
  EXPECT_GE(met.cached.from("memory"), 64u);
  EXPECT_LE(met.cached.from("memory"), 448u);
  EXPECT_EQ(met.tokens, cold.tokens);
  expect_pages_returned();
}

// It has what the tier brings; they have nothing but computing.
TEST_F(MeetingLoadTest, OthersAreComputedBeforeIt) {
  const Request request = ask(1, 512, 1);
  const Response cold = compute(request);
  const RequestId meets = engine_->submit(request).value();
  ASSERT_TRUE(engine_->run_once());
  ASSERT_EQ(cache_->stats().meetings, 1u);
  const std::uint64_t computed = engine_->stats().prefill_tokens;
  const RequestId other = engine_->submit(generate(5, 900, 1)).value();
  std::vector<Response> finished;
  while (finished.empty()) {
    engine_->run_once();
    finished = engine_->finished();
  }
  EXPECT_EQ(finished[0].id, other);
  EXPECT_EQ(engine_->stats().prefill_tokens, computed + 900) << "the other's alone";

  // However many there are, it comes.
  std::optional<Response> met;
  for (std::uint32_t turn = 0; turn < 1000 && !met; ++turn) {
    if (engine_->waiting() + engine_->running() < 3) {
      ASSERT_TRUE(engine_->submit(generate(10 + turn, 900, 1)));
    }
    engine_->run_once();
    time_.advance(0.05);
    for (Response& response : engine_->finished()) {
      if (response.id == meets) met = std::move(response);
    }
  }
  ASSERT_TRUE(met);
  ASSERT_FALSE(met->error);
  EXPECT_EQ(met->tokens, cold.tokens);
  EXPECT_GE(met->cached.from("memory"), 256u);
}

// They share what was computed and what came.
TEST_F(MeetingLoadTest, OthersWhoBeginAlikeWaitForIt) {
  const Response cold = compute(ask(1, 512, 1));
  const std::uint64_t computed = engine_->stats().prefill_tokens;
  for (const std::uint32_t question : {1u, 2u, 1u}) ASSERT_TRUE(engine_->submit(ask(1, 512, question)));
  std::vector<Response> finished;
  while (finished.size() < 3) {
    engine_->run_once();
    for (Response& response : engine_->finished()) finished.push_back(std::move(response));
  }
  EXPECT_EQ(cache_->stats().meetings, 1u);
  const std::uint64_t brought = finished[0].cached.from("memory");
  EXPECT_GE(brought, 64u);
  EXPECT_EQ(finished[0].tokens, cold.tokens);
  EXPECT_EQ(finished[1].cached.from("pool"), 512u);
  EXPECT_EQ(finished[2].cached.from("pool"), 512u);
  EXPECT_EQ(engine_->stats().prefill_tokens - computed, 512 - brought + 3 * 9);
}

TEST_F(MeetingLoadTest, ForWhoDemandsExactnessToo) {
  Request request = ask(1, 512, 1);
  request.policy.exact = true;
  const Response cold = compute(request);
  const Response met = engine_->run(request);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(met.tokens, cold.tokens);
}

// Its front is ragged once it has dropped tokens: what came of its back cannot join it.
TEST_F(MeetingLoadTest, WhatDropsTokensComputesTheRest) {
  Request request = ask(1, 512, 1);
  static_cast<void>(compute(request));
  request.budget = KvBudgetOptions{.tokens = 64, .method = "knorm", .prefill = BudgetPrefill::kChunked, .interval = 32};
  const Response dropped = engine_->run(request);
  ASSERT_FALSE(dropped.error) << dropped.error->message;
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(dropped.cached.total(), 0u);
  const Status sound = pool_->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
  expect_pages_returned();
}

TEST_F(MeetingLoadTest, CancellingReturnsWhatWasAsked) {
  static_cast<void>(compute(ask(1, 512, 1)));
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

// It may be computed sooner than it comes.
TEST_F(MeetingLoadTest, GivesUpNothingThatWaitsToBeStored) {
  const Request request = ask(1, 512, 1);
  static_cast<void>(compute(request));
  {
    Sequence other(*pool_);
    const std::uint32_t tokens = pool_->blocks_total() * pool_->shape().block_size;
    ASSERT_TRUE(other.append(tokens));
    cache_->store({.tokens = testing::random_tokens(tokens, 256, 9)}, other);
  }
  ASSERT_EQ(pool_->blocks_free(), 0u);
  std::vector<Token> prompt;
  for (const PrefixSpan& span : request.spans) prompt.insert(prompt.end(), span.tokens.begin(), span.tokens.end());
  Sequence sequence(*pool_);
  Backlog backlog;
  backlog.meet = true;
  Retrieval retrieval = cache_->retrieve(prompt, {}, sequence, backlog);
  ASSERT_EQ(cache_->stats().meetings, 1u);
  EXPECT_TRUE(retrieval.poll(model_->executor(), 1));
  EXPECT_EQ(cache_->stats().given_up, 0u);
  EXPECT_EQ(pool_->blocks_free(), 0u);
}

TEST_F(MeetingLoadTest, ATierThatFallsSilentIsComputedInstead) {
  auto tier = std::make_unique<testing::SilentTier>(make_memory_tier(tier_bytes_, time_), time_);
  testing::SilentTier& silent = *tier;
  open_meeting(std::move(tier));
  const Request request = ask(1, 512, 1);
  const Response cold = compute(request);
  silent.set_silent(true);
  const double begun_s = time_.now_s();
  ASSERT_TRUE(engine_->submit(request));
  std::vector<Response> finished;
  while (finished.empty() && time_.now_s() < begun_s + 20) {
    engine_->run_once();
    finished = engine_->finished();
  }
  ASSERT_EQ(finished.size(), 1u) << "it waits for ever";
  const Response& answer = finished[0];
  const double took_s = time_.now_s() - begun_s;
  ASSERT_FALSE(answer.error) << answer.error->message;
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(cache_->stats().late_loads, 1u);
  EXPECT_EQ(answer.tokens, cold.tokens);
  EXPECT_EQ(answer.cached.total(), 0u);
  EXPECT_GT(took_s, 0.5);
  EXPECT_LT(took_s, 2) << "a chunk is estimated to take a quarter of a second";

  // What is known to be silent is not asked again at once.
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_FALSE(engine_->run(ask(1, 512, 2)).error);
  EXPECT_EQ(cache_->stats().meetings, 1u);
  EXPECT_EQ(cache_->stats().late_loads, 1u);
  silent.set_silent(false);
  expect_pages_returned();
}

TEST_F(MeetingLoadTest, BringsNothingOfAChunkThatIsDamaged) {
  std::uint64_t left = 0;  // so many reads from now on the one that is damaged
  open_slow({.corrupt_read = [&left](std::uint64_t) { return left > 0 && --left == 0; }});
  for (std::uint32_t read = 1; read <= 4; ++read) {
    const Request request = ask(read, 512, 1);
    const Response cold = compute(request);
    left = read;
    const Response met = engine_->run(request);
    ASSERT_FALSE(met.error) << met.error->message;
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(cache_->stats().meetings, read);
    EXPECT_EQ(met.cached.total(), 64 * ((read - 1) / 2)) << "what came behind it: a chunk is two reads";
    EXPECT_EQ(met.tokens, cold.tokens);
    EXPECT_EQ(cache_->store().stats().damaged_chunks, read);
  }
  expect_pages_returned();
}

}  // namespace
}  // namespace shale
