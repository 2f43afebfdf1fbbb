// Requests that share a pool too small for all of them.
#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "engine/chunk.h"
#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;

class AdmissionTest : public EngineTest {
 protected:
  std::vector<Response> run_all(const std::vector<Request>& requests) {
    std::vector<Response> responses(requests.size());
    std::vector<RequestId> ids;
    for (const Request& request : requests) {
      const auto id = engine_->submit(request);
      EXPECT_TRUE(id) << id.error().message;
      ids.push_back(id ? *id : 0);
    }
    for (std::size_t left = requests.size(); left > 0;) {
      engine_->run_once();
      for (Response& response : engine_->finished()) {
        const auto place = std::ranges::find(ids, response.id) - ids.begin();
        responses[static_cast<std::size_t>(place)] = std::move(response);
        order_.push_back(static_cast<std::size_t>(place));
        --left;
      }
      const Status sound = pool_->check_integrity();
      EXPECT_TRUE(sound) << sound.error().message;
    }
    return responses;
  }

  std::vector<std::size_t> order_;  // in which requests finished
};

TEST_F(AdmissionTest, RunsThatMadeRoomGoOnWithTheSameBytes) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) requests.push_back(generate(i, 100 + 10 * i, 200));
  requests[1].budget = KvBudgetOptions{.tokens = 64, .method = "h2o", .interval = 32};
  std::vector<Response> alone;
  for (const Request& request : requests) alone.push_back(engine_->run(request));

  open(40);  // three of them need 20 blocks each at their ends
  const std::vector<Response> together = run_all(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(together[i].error) << together[i].error->message;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
  }
  EXPECT_GT(engine_->stats().preempted, 0u);
  EXPECT_EQ(engine_->stats().resumed, engine_->stats().preempted);
  EXPECT_EQ(engine_->stats().computed_again, 0u);
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
  for (const auto& tier : cache_->tiers()) EXPECT_EQ(tier->used_bytes(), 0u);  // nothing spilled is left behind
}

TEST_F(AdmissionTest, WhereNoTierHasRoomAnExactRunIsComputedAgain) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(generate(i, 100, 150));
  std::vector<Response> alone;
  for (const Request& request : requests) alone.push_back(engine_->run(request));
  tier_bytes_ = 4096;
  open(28);
  const std::vector<Response> together = run_all(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(together[i].error) << together[i].error->message;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
  }
  EXPECT_GT(engine_->stats().computed_again, 0u);
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

TEST_F(AdmissionTest, HigherPriorityGoesFirstAndIsPreemptedLast) {
  open(30);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) {
    requests.push_back(generate(i, 150, 60));
    requests.back().priority = i == 5 ? 1 : 0;
  }
  const auto responses = run_all(requests);
  for (const Response& response : responses) EXPECT_FALSE(response.error);
  EXPECT_EQ(order_.front(), 5u);
}

// The simulator's schedulers choose among those who wait; priorities go before them, and who was cancelled is not
// chosen.
TEST_F(AdmissionTest, TheSchedulerChoosesAmongEquals) {
  const std::vector<std::size_t> lengths = {60, 20, 90, 40, 75};
  const auto order_of = [&](std::string scheduler) {
    cache_->evict_until_free(pool_->blocks_total());
    Engine engine(
        {.sequences_max = 1, .scheduler = std::move(scheduler), .scheduling = {.rescore = false}, .chunk_tokens = 128},
        *model_, tokenizer_, *cache_, clock_);
    Request warm = generate(2, 90, 1);  // the third request's prompt is in the pool
    warm.insert_prefix = true;
    engine.run(warm);
    std::vector<RequestId> ids;
    for (std::uint32_t i = 0; i < lengths.size(); ++i) {
      Request request = generate(i, lengths[i], 2);
      request.priority = i == 4;
      ids.push_back(*engine.submit(request));
    }
    const RequestId cancelled = *engine.submit(generate(9, 30, 2));
    engine.cancel(cancelled);
    std::vector<std::size_t> order;
    while (order.size() < lengths.size() + 1) {
      engine.run_once();
      for (const Response& response : engine.finished()) {
        order.push_back(static_cast<std::size_t>(std::ranges::find(ids, response.id) - ids.begin()));
      }
    }
    order.erase(order.begin());  // the cancelled one
    return order;
  };
  EXPECT_THAT(order_of("fifo"), ::testing::ElementsAre(4, 0, 1, 2, 3));
  EXPECT_THAT(order_of("shortest"), ::testing::ElementsAre(4, 1, 3, 0, 2));
  EXPECT_THAT(order_of("longest"), ::testing::ElementsAre(4, 2, 0, 3, 1));
  EXPECT_THAT(order_of("reuse"), ::testing::ElementsAre(4, 2, 0, 1, 3));
}

TEST_F(AdmissionTest, BudgetsLetMoreRunTogether) {
  open(60);
  const auto most_running = [&](std::optional<KvBudgetOptions> budget) {
    std::uint32_t most = 0;
    for (std::uint32_t i = 0; i < 4; ++i) {
      Request request = generate(i, 320, 30);
      request.budget = budget;
      EXPECT_TRUE(engine_->submit(std::move(request)));
    }
    for (std::size_t left = 4; left > 0; left -= engine_->finished().size()) {
      engine_->run_once();
      most = std::max(most, engine_->running());
    }
    return most;
  };
  const std::uint32_t full = most_running(std::nullopt);
  const KvBudgetOptions budget{.tokens = 64, .method = "knorm", .prefill = BudgetPrefill::kChunked, .interval = 32};
  EXPECT_LT(full, 4u);
  EXPECT_EQ(most_running(budget), 4u);
}

TEST_F(AdmissionTest, ManyShortRequestsLeaveNothingBehind) {
  open(24);
  std::mt19937 random(3);
  constexpr const char* kMethods[] = {"", "paged_eviction", "streaming", "snapkv", "adakv:knorm"};
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 300; ++i) {
    Request request = generate(i % 7, 1 + random() % 90, 1 + static_cast<std::uint32_t>(random() % 40));
    request.insert_prefix = random() % 2 == 0;
    const std::string method = kMethods[random() % 5];
    if (!method.empty()) request.budget = KvBudgetOptions{.tokens = 32, .method = method, .interval = 16};
    requests.push_back(std::move(request));
  }
  for (const Response& response : run_all(requests)) EXPECT_FALSE(response.error) << response.error->message;
  EXPECT_TRUE(cache_->evict_until_free(24));  // only the prefix tree holds any
  EXPECT_EQ(pool_->blocks_free(), 24u);
  for (const auto& tier : cache_->tiers()) EXPECT_EQ(tier->used_bytes(), 0u);
}

TEST_F(AdmissionTest, TenThousandRequestsLeaveNoDrift) {
  open(12);
  std::mt19937 random(9);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    Request request = generate(static_cast<std::uint32_t>(random() % 50), 1 + random() % 24, 1);
    request.insert_prefix = true;
    if (random() % 8 == 0) request.max_tokens = 6;
    if (random() % 8 == 0) request.budget = KvBudgetOptions{.tokens = 16, .method = "knorm", .interval = 1};
    requests.push_back(std::move(request));
    if (requests.size() == 1000) {
      for (const Response& response : run_all(std::exchange(requests, {}))) ASSERT_FALSE(response.error);
    }
  }
  EXPECT_TRUE(cache_->evict_until_free(12));
  EXPECT_EQ(pool_->pages_free(), 12 * pool_->shape().pages_per_block());
}

// A whole chunk and those who decode beside it are no more than the model takes in a step.
TEST_F(AdmissionTest, LongPromptsJoinWhoDecodes) {
  for (const double slowdown : {0.0, 1.7}) {
    Engine engine({.sequences_max = 4, .chunk_tokens = 512, .chunk_slowdown = slowdown}, *model_, tokenizer_, *cache_,
                  clock_);
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(engine.submit(generate(i, i == 2 ? 1200 : 20, 40)));
    for (std::size_t left = 3; left > 0;) {
      engine.run_once();
      for (const Response& response : engine.finished()) {
        EXPECT_FALSE(response.error) << response.error->message;
        --left;
      }
    }
  }
}

TEST_F(AdmissionTest, WhatARunComputedItselfIsNotCached) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) {
    requests.push_back(generate(i, 100, 150));
    requests.back().insert_prefix = true;
  }
  tier_bytes_ = 4096;
  open(28);
  for (const Response& response : run_all(requests)) EXPECT_EQ(response.cached.total(), 0u);
  EXPECT_GT(engine_->stats().computed_again, 0u);
}

TEST_F(AdmissionTest, TokensWithoutTextAreToldApart) {
  bool seen[2] = {};
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Request request = generate(seed, 20, 4);
    request.sampling = {.temperature = 2, .seed = seed};
    const Response response = engine_->run(std::move(request));
    const bool unspoken =
        std::ranges::any_of(response.tokens, [&](Token token) { return tokenizer_.text({&token, 1}, false).empty(); });
    EXPECT_EQ(response.unspoken, unspoken);
    seen[unspoken] = true;
  }
  EXPECT_TRUE(seen[false] && seen[true]);
}

TEST_F(AdmissionTest, CancelsWhatWaitsOnATier) {
  open(40);
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 4; ++i) ids.push_back(*engine_->submit(generate(i, 100, 300)));
  while (engine_->preempted() == 0) ASSERT_TRUE(engine_->run_once());
  for (const RequestId id : ids) engine_->cancel(id);
  while (engine_->run_once()) {
  }
  EXPECT_EQ(engine_->finished().size(), 4u);
  EXPECT_EQ(pool_->blocks_free(), 40u);
  for (const auto& tier : cache_->tiers()) EXPECT_EQ(tier->used_bytes(), 0u);
}

// A machine on which a step takes so long.
struct Machine {
  double step_s = 0.01, decoding_s = 0.001, token_s = 0.0005, position_s = 0;
  double seconds(const StepWork& work) const {
    return step_s + decoding_s * work.decoding + token_s * work.tokens + position_s * static_cast<double>(work.depth);
  }
};

// So many steps with a chunk each of a prompt at `depth`; how long the last took.
double run_steps(ChunkControl& control, const Machine& machine, int steps, std::uint32_t decoding,
                 std::uint32_t depth = 0) {
  double seconds = 0;
  for (int i = 0; i < steps; ++i) {
    const StepWork work = StepWork{.decoding = decoding}.with(control.tokens({.decoding = decoding}, depth), depth);
    seconds = machine.seconds(work);
    control.took(work, seconds);
  }
  return seconds;
}

TEST(ChunkControl, AimsAtTheSlowdown) {
  ChunkControl control(512, 2.0, 0);
  Machine machine{.step_s = 0.016, .token_s = 0.002};
  for (std::uint32_t decoding : {1u, 8u, 1u, 8u}) {
    for (int i = 0; i < 5; ++i) control.took({.decoding = decoding}, machine.seconds({.decoding = decoding}));
  }
  run_steps(control, machine, 50, 8);
  // A chunk's token costs 2 ms beside 24 ms of decoding: twice as long is a chunk of 12, in eights.
  EXPECT_LE(control.tokens({.decoding = 8}, 0), 24u);
  EXPECT_GE(control.tokens({.decoding = 8}, 0), 8u);
  // A faster machine takes larger chunks.
  machine.token_s = 1e-5;
  run_steps(control, machine, 400, 8);
  EXPECT_GE(control.tokens({.decoding = 8}, 0), 200u);
}

// Where decoding is fast, a multiple of it is a chunk too small to be worth its step.
TEST(ChunkControl, LetsAStepTakeItsTime) {
  ChunkControl control(512, 2.0, 0.05);
  const Machine machine{.step_s = 0.003};
  EXPECT_NEAR(run_steps(control, machine, 100, 1), 0.05, 0.005);
  EXPECT_GE(control.tokens({.decoding = 1}, 0), 80u);
}

TEST(ChunkControl, BeginsWithSmallChunks) {
  ChunkControl control(512, 2.0, 0.05);
  const Machine slow{.step_s = 0.03, .token_s = 0.001};
  for (int i = 0; i < 20; ++i) EXPECT_LE(run_steps(control, slow, 1, 4), 0.08);  // twice 34 ms
}

// What is loaded and stored between two steps is part of the gap between two tokens.
TEST(ChunkControl, LeavesTimeForWhatIsDoneBetweenSteps) {
  ChunkControl control(512, 2.0, 0.05);
  const Machine machine;
  run_steps(control, machine, 100, 4);
  const std::uint32_t alone = control.tokens({.decoding = 4}, 0);
  for (int i = 0; i < 100; ++i) {
    const double between_s = i % 2 == 0 ? 0.02 : 0;
    control.between(between_s);
    EXPECT_LE(between_s + run_steps(control, machine, 1, 4), 0.055);
  }
  control.between(0);
  EXPECT_NEAR(control.tokens({.decoding = 4}, 0), alone, 8);
  control.between(1);
  EXPECT_EQ(control.tokens({.decoding = 4}, 0), 8u) << "a prompt goes on nevertheless";
  EXPECT_EQ(control.tokens({.decoding = 4, .tokens = 8}, 0), 0u) << "others do not";
}

// Every position before a chunk is read, so that what is left of several long prompts is no small chunk.
TEST(ChunkControl, CountsWhatChunksStandOn) {
  ChunkControl control(512, 2.0, 0.05);
  const Machine machine{.position_s = 8e-6};
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(run_steps(control, machine, 1, 4, static_cast<std::uint32_t>(i % 5) * 500), i < 20 ? 0.07 : 0.055);
  }
  const StepWork one = StepWork{.decoding = 4}.with(8, 2000);
  EXPECT_GT(control.tokens({.decoding = 4}, 0), control.tokens({.decoding = 4}, 2000));
  EXPECT_GE(control.tokens(one, 0), 16u);
  EXPECT_LE(control.tokens(one, 2000), 16u);
  EXPECT_EQ(control.tokens(one.with(8, 2000), 2000), 0u);
}

// Many decode in little more time than one: a step with a chunk is not to take many times as long.
TEST(ChunkControl, KnowsWhatManyTake) {
  ChunkControl control(512, 2.0, 0);
  control.took({.decoding = 1}, 0.010);
  control.took({.decoding = 8}, 0.016);
  EXPECT_EQ(control.decode_s(1), 0.010);
  EXPECT_EQ(control.decode_s(7), 0.010);
  EXPECT_EQ(control.decode_s(16), 0.016);
  EXPECT_EQ(ChunkControl(512, 2.0, 0).decode_s(4), 0);
}

TEST(StepModel, IsNotLedAstrayByOneSlowStep) {
  StepModel model;
  const Machine machine{.position_s = 4e-6};
  for (std::uint32_t i = 0; i < 200; ++i) {
    const StepWork work{.decoding = 1 + i % 7, .tokens = i % 3 * 24, .depth = i % 5 * 400};
    model.took(work, i == 150 ? 5.0 : machine.seconds(work));
  }
  for (const StepWork& work : {StepWork{.decoding = 4}, StepWork{.decoding = 2, .tokens = 40, .depth = 1000}}) {
    EXPECT_NEAR(model.seconds(work), machine.seconds(work), 0.15 * machine.seconds(work));
  }
  EXPECT_EQ(model.seconds({}), 0);
  EXPECT_NEAR(model.tokens_in(0.05, {.decoding = 4}, 0), 72, 15);
}

}  // namespace
}  // namespace shale
