// What a preempted request goes on with: its own bytes, where they come back whole, or what computing them gives.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"
#include "support/faulty_tier.h"
#include "support/timed_model.h"

namespace shale {
namespace {

using testing::LoadingTest;

class PreemptionTest : public LoadingTest {
 protected:
  // Over a tier every read of which is damaged.
  void open_over_damage(std::uint32_t pool_blocks) {
    open_over(std::make_unique<testing::FaultyTier>(make_memory_tier(tier_bytes_, time_),
                                                    testing::Faults{.corrupt_read = testing::every(1)}, time_),
              pool_blocks);
  }

  std::vector<Response> run_one_by_one(const std::vector<Request>& requests) {
    std::vector<Response> responses;
    for (const Request& request : requests) responses.push_back(engine_->run(request));
    return responses;
  }

  std::vector<Response> run_together(const std::vector<Request>& requests) {
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(engine_->submit(request).value());
    std::vector<Response> responses(requests.size());
    while (engine_->run_once()) continue;
    for (Response& response : engine_->finished()) {
      responses[static_cast<std::size_t>(std::ranges::find(ids, response.id) - ids.begin())] = std::move(response);
    }
    return responses;
  }

  void expect_nothing_left_behind() {
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
    for (const Tier* tier : cache_->tiers()) EXPECT_EQ(tier->used_bytes(), 0u);
  }
};

TEST_F(PreemptionTest, DamagedBytesAreComputedAgain) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) requests.push_back(generate(i, 100, 200));
  const std::vector<Response> alone = run_one_by_one(requests);
  open_over_damage(40);
  const std::vector<Response> together = run_together(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(together[i].error) << together[i].error->message;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
  }
  EXPECT_GT(engine_->stats().preempted, 0u);
  EXPECT_EQ(engine_->stats().computed_again, engine_->stats().preempted);
  expect_nothing_left_behind();
}

TEST_F(PreemptionTest, DamagedBytesOfOneThatCannotBeComputedAgainAreAnError) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(generate(i, 100, 200));
  requests[2].budget = KvBudgetOptions{.tokens = 64, .method = "h2o", .interval = 32};
  const std::vector<Response> alone = run_one_by_one(requests);
  open_over_damage(34);
  const std::vector<Response> together = run_together(requests);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_FALSE(together[i].error) << together[i].error->message;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
  }
  ASSERT_TRUE(together[2].error);
  EXPECT_EQ(together[2].error->code, ErrorCode::kCorrupt);
  expect_nothing_left_behind();
}

// What it drew so far stands on exact blocks, so the rest of its answer does, too.
TEST_F(PreemptionTest, AnAnswerGoesOnOverExactBlocksThoughALossyFormIsThere) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request request = ask(i, 100, i);
    request.max_tokens = 150;
    request.ignore_end = true;
    request.use_cache = false;
    requests.push_back(std::move(request));
  }
  const std::vector<Response> alone = run_one_by_one(requests);
  for (Request& request : requests) request.use_cache = true;
  planner_ = "fixed:kivi4";
  model_ = std::make_unique<testing::TimedModel>(std::move(model_), time_);  // so that steps leave time to store
  open_over(make_memory_tier(80 << 10, time_), 28);  // room for the forms, and for nobody's bytes
  const std::vector<Response> together = run_together(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(together[i].error) << together[i].error->message;
    EXPECT_FALSE(together[i].lossy) << "request " << i;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
  }
  EXPECT_GT(engine_->stats().computed_again, 0u);
  EXPECT_GT(cache_->store().stats().extents, 0u);
}

}  // namespace
}  // namespace shale
