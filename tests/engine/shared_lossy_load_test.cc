// Lossy forms that requests share: loaded once for those who come together, and kept with what is computed behind them.
#include <gmock/gmock.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/shared_load_fixture.h"

namespace shale {
namespace {

using testing::SharedLoadTest;

class SharedLossyLoadTest : public SharedLoadTest {
 protected:
  SharedLossyLoadTest() {
    planner_ = "fixed:int8";
    store(256);
  }
};

TEST_F(SharedLossyLoadTest, LossyFormsAreSharedLikewise) {
  const std::uint64_t one = bytes_of_one(), before = bytes_read();
  EXPECT_GT(one, 0u);
  static_cast<void>(submit_all(4));
  const auto responses = run_all();
  EXPECT_EQ(bytes_read() - before, one);
  expect_sources(responses, 1, 3);
  for (const auto& [id, response] : responses) EXPECT_TRUE(response.lossy);
}

// Of 192 tokens that are loaded, and a question and an answer whose last block is not whole.
class LossyTurnTest : public SharedLossyLoadTest {
 protected:
  static Request turn(const RequestPolicy& policy, std::vector<Token> rest) {
    Request request = ask(1, 200, 1);
    request.spans[1].tokens.insert(request.spans[1].tokens.end(), rest.begin(), rest.end());
    request.policy = policy;
    request.store_answer = request.ignore_end = true;
    request.max_tokens = 40;
    return request;
  }
  // A turn, and what the pool and the tier have of the next.
  CachedTokens second_turn(const RequestPolicy& policy = {}) {
    const Response first = engine_->run(turn(policy, {}));
    EXPECT_FALSE(first.error);
    EXPECT_TRUE(first.lossy);
    drain();
    const Response second = engine_->run(turn(policy, first.tokens));
    EXPECT_FALSE(second.error);
    EXPECT_TRUE(second.lossy);
    drain();
    rest_ = first.tokens;
    return second.cached;
  }
  CachedTokens cached(const RequestPolicy& policy) {
    const Response response = engine_->run(turn(policy, rest_));
    drain();
    return response.cached;
  }

  std::vector<Token> rest_;
};

TEST_F(LossyTurnTest, WhatIsComputedBehindThemIsThereForTheNextTurn) {
  const CachedTokens second = second_turn();
  EXPECT_EQ(second.from("pool"), 240u);
  EXPECT_EQ(second.from("memory"), 0u);
  EXPECT_EQ(cached({.exact = true}).total(), 0u);
}

// The document is everybody's, the turn is of those with the same salt.
TEST_F(LossyTurnTest, BehindWhatIsPublishedLikewiseForItsOwnSalt) {
  cache_->publish(ask(1, 200, 1).spans[0].tokens);
  EXPECT_EQ(second_turn({.salt = "mine"}).from("pool"), 240u);
  EXPECT_EQ(cached({.salt = "theirs"}).total(), 192u);
  EXPECT_EQ(cached({}).total(), 192u);
  EXPECT_EQ(cached({.salt = "mine"}).from("pool"), 240u);
  const auto bytes = [&] {
    std::uint64_t sum = 0;
    cache_->store().for_each_extent([&](const StoreExtent& extent) { sum += extent.bytes; });
    return sum;
  };
  const std::uint64_t before = bytes();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(second_turn({.salt = "yours"}).from("pool"), 240u);
  EXPECT_EQ(bytes(), before) << "nothing is stored that could not be found";
}

TEST_F(SharedLossyLoadTest, WhoDemandsExactnessDoesNotWaitForThem) {
  tier_->set_silent(true);
  submit(1);
  const RequestId exact = submit(2, {.exact = true});
  std::vector<Response> finished;
  for (int turn = 0; turn < 1000 && finished.empty(); ++turn) {
    engine_->run_once();
    finished = engine_->finished();
  }
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].id, exact);
  EXPECT_FALSE(finished[0].lossy);
  EXPECT_EQ(finished[0].cached.total(), 0u);
  EXPECT_EQ(engine_->loading(), 1u);
}

}  // namespace
}  // namespace shale
