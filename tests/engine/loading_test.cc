// Requests whose prefix lies on a tier that takes its time, or never answers.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"
#include "support/faulty_tier.h"

namespace shale {
namespace {

using testing::LoadingTest;

TEST_F(LoadingTest, OthersGoOnWhileATierIsSilent) {
  static_cast<void>(stored_answer(1));
  tier_->set_silent(true);
  const RequestId stuck = engine_->submit(ask(1, 200, 2)).value();
  const RequestId other = engine_->submit(generate(5, 40, 60)).value();
  std::vector<RequestId> finished;
  while (finished.empty()) {
    ASSERT_TRUE(engine_->run_once());
    for (const Response& response : engine_->finished()) finished.push_back(response.id);
  }
  EXPECT_THAT(finished, ::testing::ElementsAre(other));
  EXPECT_EQ(engine_->loading(), 1u);
  engine_->cancel(stuck);
  ASSERT_EQ(engine_->finished().size(), 1u);
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total())) << "its pages are the pool's again";
}

TEST_F(LoadingTest, WhoIsStuckComputesOnceItsEstimateIsLongPast) {
  const std::vector<Token> expected = stored_answer(1);
  tier_->set_silent(true);
  const double begun_s = time_.now_s();
  const Response response = engine_->run(ask(1, 200, 1));
  EXPECT_FALSE(response.error);
  EXPECT_EQ(response.tokens, expected);
  EXPECT_EQ(response.cached.total(), 0u);
  EXPECT_EQ(cache_->stats().late_loads, 1u);
  EXPECT_LT(time_.now_s() - begun_s, late_after_s(0.1, kPatienceAlwaysS)) << "the estimate is of a memory tier";

  // What is known to be silent is not asked again at once.
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_FALSE(engine_->run(ask(1, 200, 2)).error);
  EXPECT_EQ(cache_->stats().late_loads, 1u);
  tier_->set_silent(false);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

TEST_F(LoadingTest, ASilentTierIsGivenHalfASecondOrTenWhereLoadingIsAllThatCounts) {
  for (const bool always : {false, true}) {
    load_always_ = always;
    open_over_tier(256);
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10);  // loading pays by far
    static_cast<void>(stored_answer(1));
    tier_->set_silent(true);
    const double begun_s = time_.now_s();
    ASSERT_TRUE(engine_->submit(ask(1, 200, 1)));
    const auto run_until = [&](double seconds) {
      while (cache_->stats().late_loads == 0 && time_.now_s() < begun_s + seconds) engine_->run_once();
      return cache_->stats().late_loads;
    };
    EXPECT_EQ(run_until(always ? 9 : 0.4), 0u);
    EXPECT_EQ(engine_->loading(), 1u);
    EXPECT_EQ(run_until(always ? 11 : 1), 1u);
  }
}

TEST_F(LoadingTest, WhatDidNotComeInTimeIsChargedToItsTenant) {
  static_cast<void>(stored_answer(1));
  tier_->set_silent(true);
  engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 1}, *model_, tokenizer_, *cache_, time_);
  const auto submit = [&](std::string tenant, Request request) {
    request.tenant = std::move(tenant);
    return engine_->submit(std::move(request)).value();
  };
  const RequestId late = submit("one", ask(1, 200, 1)), later = submit("one", generate(6, 40, 1));
  const RequestId other = submit("other", generate(7, 100, 1)), others = submit("other", generate(8, 100, 1));
  std::vector<RequestId> finished;
  while (finished.size() < 4) {
    ASSERT_TRUE(engine_->run_once());
    for (const Response& response : engine_->finished()) finished.push_back(response.id);
  }
  EXPECT_THAT(finished, ::testing::ElementsAre(late, other, others, later)) << "it computed twice as much as the other";
}

TEST_F(LoadingTest, ALateTierIsAskedAgainWhenItAnswers) {
  static_cast<void>(stored_answer(1));
  tier_->set_silent(true);
  EXPECT_FALSE(engine_->run(ask(1, 200, 1)).error);
  tier_->set_silent(false);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  time_.advance(60);
  EXPECT_EQ(engine_->run(ask(1, 200, 2)).cached.from("memory"), 192u);
}

TEST_F(LoadingTest, APreemptedRunThatCannotBeComputedAgainDoesNotWaitForEver) {
  open_over_tier(34);
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request request = generate(i, 100, 200);
    if (i == 2) request.budget = KvBudgetOptions{.tokens = 64, .method = "h2o", .interval = 32};
    ids.push_back(engine_->submit(std::move(request)).value());
  }
  while (engine_->preempted() == 0) ASSERT_TRUE(engine_->run_once());
  tier_->set_silent(true);
  std::vector<ErrorCode> errors;
  for (std::size_t left = ids.size(), rounds = 0; left > 0; ++rounds) {
    ASSERT_LT(rounds, 5000u);
    engine_->run_once();
    if (engine_->running() == 0) time_.advance(1);
    for (const Response& response : engine_->finished()) {
      --left;
      if (response.error) errors.push_back(response.error->code);
    }
  }
  EXPECT_THAT(errors, ::testing::ElementsAre(ErrorCode::kIo));
}

// In pools of some requests; a document and its question take 15 blocks.
class SmallPoolTest : public LoadingTest {
 protected:
  // So many documents lie on a tier that is silent from now on.
  void open_over_silent_tier(std::uint32_t pool_blocks, std::uint32_t documents) {
    open_over_tier(pool_blocks);
    for (std::uint32_t document = 1; document <= documents; ++document) static_cast<void>(stored_answer(document));
    tier_->set_silent(true);
  }
  void submit(std::uint32_t documents) {
    for (std::uint32_t document = 1; document <= documents; ++document) {
      ASSERT_TRUE(engine_->submit(ask(document, 200, 2)));
    }
  }
  void run_some_turns() {
    for (int i = 0; i < 3; ++i) engine_->run_once();
  }
  std::vector<Response> first_finished() {
    std::vector<Response> finished;
    for (int turn = 0; turn < 100 && finished.empty(); ++turn) {
      engine_->run_once();
      finished = engine_->finished();
    }
    return finished;
  }
};

TEST_F(SmallPoolTest, LoadsLeaveHalfOfThePoolToCompute) {
  open_over_silent_tier(60, 4);
  submit(4);
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(engine_->waiting(), 2u);
}

TEST_F(SmallPoolTest, ManyLoadInALargerOne) {
  open_over_silent_tier(96, 4);
  submit(4);
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 3u) << "half of the pool";
  EXPECT_EQ(engine_->waiting(), 1u);
}

TEST_F(SmallPoolTest, ATierHasTheNextToReadWhereHalfOfThePoolIsLessThanTwo) {
  open_over_silent_tier(48, 3);
  submit(3);
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(engine_->waiting(), 1u);
}

TEST_F(SmallPoolTest, WhoFindsNothingGoesPastLoads) {
  open_over_silent_tier(60, 3);
  submit(2);
  const RequestId computed = engine_->submit(ask(4, 200, 2)).value();
  ASSERT_TRUE(engine_->submit(ask(3, 200, 2)));
  const std::vector<Response> finished = first_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].id, computed);
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(engine_->waiting(), 1u) << "who would load waits for half of the pool";
}

TEST_F(SmallPoolTest, WhoFindsItsPrefixInThePoolGoesPastLoads) {
  open_over_silent_tier(60, 2);
  ASSERT_FALSE(engine_->run(ask(3, 200, 1)).error);
  submit(2);
  const RequestId pooled = engine_->submit(ask(3, 200, 2)).value();
  const std::vector<Response> finished = first_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].id, pooled);
  EXPECT_EQ(engine_->loading(), 2u);
}

// Beside the tier lies one that other processes share. It hangs.
class AskingTest : public LoadingTest {
 protected:
  AskingTest() { open_beside_shared(256); }
  ~AskingTest() override { close(); }

  void open_beside_shared(std::uint32_t pool_blocks, std::string planner = "shale", bool load_always = false) {
    close();
    answers_ = false;
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    auto tier = std::make_unique<testing::SilentTier>(make_memory_tier(tier_bytes_, time_), time_);
    tier_ = tier.get();
    std::vector<StoreTier> tiers(2);
    tiers[0].tier = std::move(tier);
    tiers[1] = {.tier = std::make_unique<testing::FaultyTier>(
                    make_directory_tier(folder_.path() / "shared", kUnlimited, time_).value(),
                    testing::Faults{.open = &answers_}, time_),
                .shared = true};
    CacheOptions options;
    options.planner = std::move(planner);
    options.load_always = load_always;
    options.model = model_->info().traits();
    cache_ = Cache::open(std::move(options), {model_->fingerprint(), "tiny"}, *pool_, std::move(tiers), nullptr, time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128}, *model_, tokenizer_,
                                       *cache_, time_);
  }
  void close() {
    answers_ = true;
    answers_.notify_all();
    engine_.reset();
    cache_.reset();
  }

  std::atomic<bool> answers_ = false;
};

TEST_F(AskingTest, OthersBeginAndEndWhileASharedTierIsAsked) {
  const RequestId asking = engine_->submit(ask(1, 200, 1)).value();
  Request uncached = generate(5, 40, 20);
  uncached.use_cache = false;
  const RequestId other = engine_->submit(std::move(uncached)).value();
  std::vector<Response> finished;
  while (finished.empty()) {
    ASSERT_TRUE(engine_->run_once());
    finished = engine_->finished();
  }
  EXPECT_EQ(finished[0].id, other) << "and no time has passed, which a wait would have taken";
  EXPECT_EQ(engine_->loading(), 1u);

  const double begun_s = time_.now_s();
  finished.clear();
  while (finished.empty()) {
    engine_->run_once();
    finished = engine_->finished();
  }
  EXPECT_EQ(finished[0].id, asking);
  EXPECT_FALSE(finished[0].error);
  EXPECT_EQ(finished[0].cached.total(), 0u);
  EXPECT_LE(time_.now_s() - begun_s, 0.3) << "whoever does not answer is waited for a little";
  EXPECT_EQ(cache_->store().stats().tenants[0].lookups, 1u) << "asking is no look-up";
}

TEST_F(AskingTest, WhoIsStillAskedForCountsAsALoad) {
  open_beside_shared(60);  // a document and its question take 15
  for (std::uint32_t document = 1; document <= 3; ++document) ASSERT_TRUE(engine_->submit(ask(document, 200, 2)));
  for (int i = 0; i < 3; ++i) engine_->run_once();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(engine_->waiting(), 1u) << "nobody knows yet whether it would load";
  std::size_t finished = 0;
  for (int turn = 0; turn < 100000 && finished < 3; ++turn) {
    engine_->run_once();
    finished += engine_->finished().size();
  }
  EXPECT_EQ(finished, 3u);
}

// Of requests about a document that the upper tier has.
class AskingTogetherTest : public AskingTest {
 protected:
  void SetUp() override {
    open_beside_shared(256, "lru", true);  // what is new lies above
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10);
    answer();
    static_cast<void>(stored_answer(1));
    ASSERT_GT(cache_->store().stats().tiers[0].extents, 0u);
    answers_ = false;
    looked_up_ = lookups();
  }
  void answer() {
    answers_ = true;
    answers_.notify_all();
  }
  std::uint64_t lookups() const { return cache_->store().stats().tenants[0].lookups; }
  // Nothing beyond its document is to be asked for; beyond another's there is its question.
  static Request whole() {
    Request request = ask(1, 200, 1);
    request.spans.pop_back();
    return request;
  }
  void submit(Request request) { ASSERT_TRUE(engine_->submit(std::move(request))); }
  void run_some_turns() {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(engine_->run_once());
  }
  std::vector<Response> run_all() {
    for (int turn = 0; turn < 100'000 && engine_->run_once() && engine_->running() > 0; ++turn) continue;
    return engine_->finished();
  }

  std::uint64_t looked_up_ = 0;
};

TEST_F(AskingTogetherTest, WhoBeginsAlikeWaitsForAnAnswerThatAnotherWaitsFor) {
  submit(ask(1, 200, 2));
  run_some_turns();
  submit(whole());
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(lookups(), looked_up_);
  answer();
  EXPECT_EQ(run_all().size(), 2u);
  EXPECT_EQ(engine_->stats().shared_loads, 1u) << "one loads for both";
}

TEST_F(AskingTogetherTest, WhoSharedALoadWaitsForAnAnswerLikeAllOthers) {
  tier_->set_silent(true);
  submit(whole());
  submit(ask(1, 200, 2));
  run_some_turns();
  ASSERT_EQ(engine_->loading(), 2u);
  ASSERT_EQ(lookups(), looked_up_ + 1);
  tier_->answer();
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 1u) << "what comes after the document may lie on the other tier";
  EXPECT_EQ(lookups(), looked_up_ + 1);
  answer();
  EXPECT_EQ(run_all().size(), 2u);
  EXPECT_EQ(engine_->stats().shared_loads, 1u);
}

TEST_F(AskingTest, WhoStoresNothingAsksForNothing) {
  open_beside_shared(256, "prefill");
  ASSERT_TRUE(engine_->submit(ask(1, 200, 1)));
  ASSERT_TRUE(engine_->run_once());
  EXPECT_EQ(engine_->loading(), 0u);
}

TEST_F(AskingTest, WhoAsksCanBeCancelled) {
  const RequestId asking = engine_->submit(ask(1, 200, 1)).value();
  ASSERT_TRUE(engine_->run_once());
  EXPECT_EQ(engine_->loading(), 1u);
  engine_->cancel(asking);
  ASSERT_EQ(engine_->finished().size(), 1u);
  EXPECT_EQ(engine_->loading(), 0u);
}

}  // namespace
}  // namespace shale
