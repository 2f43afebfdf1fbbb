#include "sim/batched_engine.h"

#include <gtest/gtest.h>

#include "sim/made_trace.h"

namespace shale::testing {
namespace {

constexpr std::uint64_t kRoomForAll = ~std::uint64_t{0};

// A byte and a second a token; a step costs nothing of its own, nor does decoding, and the tier reads two tokens a
// second.
Hardware plain_engine() {
  return {.name = "made",
          .kv_bytes_per_token = 1,
          .prefill_s_per_token = 1,
          .prefill_s_per_pair = 0,
          .source = "",
          .tiers = {{"memory", kRoomForAll, 0, 2, ""}}};
}

TieredOptions with_batching(Hardware hardware, BatchingOptions batching) {
  return {.hardware = std::move(hardware), .planner = "lru", .batching = batching};
}

TieredResult batched(const Trace& trace, const TieredOptions& options) {
  const auto result = simulate_tiers(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(TieredResult{});
}

// A request, in no time.
void serve(TieredEngine& engine, const Prompt& prompt, double now_s) {
  engine.finish(prompt.path, engine.look_up(prompt, now_s), now_s, true);
}

TEST(BatchedEngine, AStepTakesWhatItComputes) {
  Hardware hardware = plain_engine();
  hardware.step_s = 10;
  const Trace trace = make_trace({{.ids = {1, 2, 3}}});
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(hardware, {})).ttft_mean_s, 10 + 12);
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(hardware, {.chunk_tokens = 5})).ttft_mean_s, 3 * 10 + 12)
      << "5, 5 and 2 tokens";
}

TEST(BatchedEngine, WhoHasTheLeastToComputeGoesFirst) {
  const Trace trace = make_trace({{.ids = std::vector<int>(25, 1)}, {.arrival_s = 1, .ids = {2}}});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {.chunk_tokens = 10}));
  EXPECT_DOUBLE_EQ(result.ttft.p50, 10 + 4 - 1) << "after the first chunk of the other";
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (104 + 13) / 2.0);
}

TEST(BatchedEngine, AShortOneWaitsForOneChunkOfAllLongOnes) {
  std::vector<MadeRequest> requests;
  for (int i = 1; i <= 6; ++i) requests.push_back({.ids = std::vector<int>(40, i)});
  requests.push_back({.arrival_s = 650, .ids = {7}});
  const auto options = with_batching(plain_engine(), {.sequences_max = 8, .chunk_tokens = 80});
  EXPECT_DOUBLE_EQ(batched(make_trace(requests), options).ttft_mean_s, (160 + 320 + 480 + 640 + 804 + 964 + 74) / 7.0);
}

TEST(BatchedEngine, AnswersTakeTimeFromPrompts) {
  Hardware hardware = plain_engine();
  hardware.decode_s_per_sequence = 8;
  const Trace trace = make_trace({{.ids = {1}, .output_tokens = 100}, {.arrival_s = 4, .ids = {2, 3, 4, 5, 6, 7}}});
  const BatchingOptions batching{.chunk_slowdown = 2, .chunk_step_s = 0};
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(hardware, batching)).ttft.p99, 3 * (8 + 8))
      << "eight tokens beside every token of the answer";
}

TEST(BatchedEngine, WhoWaitsFindsWhatAnotherComputedMeanwhile) {
  const std::vector<int> document(25, 1);
  const Trace trace = make_trace({{.ids = document}, {.ids = document}});
  for (const std::uint64_t pool_bytes : {0, 300}) {
    const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = pool_bytes}));
    EXPECT_EQ(result.tokens_computed, 100u) << "by the first";
    EXPECT_EQ(result.tokens_pooled, pool_bytes > 0 ? 100u : 0u);
    EXPECT_DOUBLE_EQ(result.ttft.p99, 100 + (pool_bytes > 0 ? 0 : 50) + 1) << "never before the first has";
  }
}

TEST(BatchedEngine, DecodingWhatWasReadIsTheEnginesWork) {
  TieredOptions with = with_batching(plain_engine(), {});
  with.profiles = {{{"half", 1, 0.5, 0.9, 0.25}}};
  with.planner = "fixed";
  with.fixed_method = "half";
  const std::vector<int> document(10, 1);
  const Trace trace = make_trace({{.ids = document}, {.arrival_s = 100, .ids = document}});
  const TieredResult result = batched(trace, with);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (40 + (10 + 10 + 1)) / 2.0) << "20 bytes are read, 40 of KV decoded";
  EXPECT_DOUBLE_EQ(result.busy, (40 + 11) / 121.0);
  EXPECT_DOUBLE_EQ(result.quality, 0.95);
}

TEST(BatchedEngine, WhatThePoolHoldsIsAsGoodAsItWas) {
  TieredOptions with = with_batching(plain_engine(), {.pool_bytes = 100});
  with.profiles = {{{"half", 1, 0.5, 0.9, 0}}};
  with.planner = "fixed";
  with.fixed_method = "half";
  const Trace trace = make_trace({{.ids = {1}}, {.arrival_s = 100, .ids = {1}}});
  const TieredResult result = batched(trace, with);
  EXPECT_EQ(result.tokens_pooled, 4u);
  EXPECT_DOUBLE_EQ(result.quality, 1) << "computed, though what lies below is lossy";
}

// 40 tokens that a tier brings in 20 s, and computing in 40.
TEST(BatchedEngine, WhatThePoolHoldsLossyIsPassedOverWhereItLosesMoreThanATierTakes) {
  const Trace trace = make_trace({{.ids = std::vector<int>(10, 1)}});
  const Contexts contexts(trace);
  const Prompt prompt = contexts.prompt(trace, trace.requests[0]);
  ASSERT_EQ(prompt.path.size(), 1u);
  for (const double alpha : {30.0, 50.0, 90.0}) {
    TieredOptions options = with_batching(plain_engine(), {});
    options.planner = "shale";
    options.alpha = alpha;
    const auto setup = TieredSetup::make(options);
    ASSERT_TRUE(setup);
    TieredEngine engine(contexts, options, *setup);
    const std::vector<Served::Part> lossy = {{.quality = 0.5, .expected = 0.5, .exact = false}}, exact = {{}};
    EXPECT_EQ(engine.pooled_that_pay(prompt.path, lossy, 0, {}), alpha == 90 ? 0u : 1u) << "nothing is stored";
    serve(engine, prompt, 0);
    EXPECT_EQ(engine.pooled_that_pay(prompt.path, lossy, 100, {}), alpha == 30 ? 1u : 0u);
    EXPECT_EQ(engine.pooled_that_pay(prompt.path, exact, 100, {}), 1u);
  }
}

// Memory has room for one of two contexts and half of the other, which is used more then.
TEST(BatchedEngine, WhatAnotherComputedMeanwhileDoesNotRiseBesideThePool) {
  const Trace trace = make_trace({{.ids = std::vector<int>(10, 1)}, {.ids = std::vector<int>(10, 2)}});
  const Contexts contexts(trace);
  const Prompt first = contexts.prompt(trace, trace.requests[0]), second = contexts.prompt(trace, trace.requests[1]);
  TieredOptions options = with_batching(plain_engine(), {});
  options.hardware.tiers = {{"memory", 60, 0, 4, ""}, {"disk", kRoomForAll, 0, 2, ""}};
  options.profiles = {{{"half", 1, 0.5, 0.75, 0}}};
  options.planner = "shale";
  options.alpha = 30;
  const auto setup = TieredSetup::make(options);
  ASSERT_TRUE(setup);
  for (const bool exact : {false, true}) {
    TieredEngine engine(contexts, options, *setup);
    for (int i = 0; i < 3; ++i) serve(engine, first, 0);
    serve(engine, second, 0);
    const std::vector<Served::Part> found = {{.quality = 0.75, .exact = false}}, now = {{.exact = exact}};
    const Served served = engine.look_up(second, 0, found);
    const auto written = engine.counts().bytes_written;
    for (int i = 0; i < 60; ++i) engine.finish(second.path, served, 0, true, now);
    EXPECT_EQ(engine.counts().bytes_written == written, exact);
  }
}

TEST(BatchedEngine, WhatFollowsALossyContextOfThePoolIsStored) {
  TieredOptions with = with_batching(plain_engine(), {.pool_bytes = 20});
  with.profiles = {{{"half", 1, 0.5, 1, 0}}};
  with.planner = "fixed";
  with.fixed_method = "half";
  with.warm_requests = 5;
  const Trace trace = make_trace({{.ids = {1, 2}},
                                  {.arrival_s = 100, .ids = {8, 8, 8, 8}},
                                  {.arrival_s = 200, .ids = {1, 2, 3}},
                                  {.arrival_s = 300, .ids = {1, 2, 3, 4}},
                                  {.arrival_s = 400, .ids = {9, 9, 9, 9}},
                                  {.arrival_s = 500, .ids = {1, 2, 3, 4}}});
  const TieredResult result = batched(trace, with);
  EXPECT_EQ(result.tokens_loaded[0], 16u)
      << "3 was computed behind what had been loaded, and 4 behind that in the pool";
  EXPECT_EQ(result.tokens_computed, 0u);
}

TEST(BatchedEngine, OneThatIsLargerThanThePoolRunsAlone) {
  const Trace trace = make_trace({{.ids = {1, 2, 3}, .output_tokens = 2}, {.ids = {4}, .output_tokens = 2}});
  EXPECT_EQ(batched(trace, with_batching(plain_engine(), {.pool_bytes = 8})).requests, 2u);
}

TEST(BatchedEngine, OthersAreComputedWhileATierReads) {
  const std::vector<int> document(50, 1);
  std::vector<int> asked = document;
  asked.push_back(2);
  const Trace trace =
      make_trace({{.ids = document}, {.arrival_s = 1000, .ids = asked}, {.arrival_s = 1000, .ids = {3, 4, 5}}});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {}));
  EXPECT_EQ(result.tokens_loaded[0], 200u);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (200 + (100 + 4) + 12) / 3.0) << "reading takes 100 s of nobody's time";
}

TEST(BatchedEngine, WhoWouldWaitToBeComputedLoads) {
  Hardware hardware = plain_engine();
  hardware.tiers[0].read_bytes_per_s = 0.5;
  const std::vector<int> document(10, 1), other(10, 2);
  const Trace alone = make_trace({{.ids = document}, {.arrival_s = 100, .ids = document}});
  EXPECT_EQ(batched(alone, with_batching(hardware, {})).tokens_loaded[0], 0u) << "reading takes twice as long";
  const Trace behind =
      make_trace({{.ids = document}, {.arrival_s = 100, .ids = other}, {.arrival_s = 100, .ids = document}});
  hardware.tiers[0].read_bytes_per_s = 0.37;
  EXPECT_EQ(batched(behind, with_batching(hardware, {.chunk_tokens = 1000})).tokens_loaded[0], 0u)
      << "after the other's 40 s it takes 40, which are worth 40 / 0.6 of loading: less than 108";
  hardware.tiers[0].read_bytes_per_s = 0.38;
  const TieredResult result = batched(behind, with_batching(hardware, {.chunk_tokens = 1000}));
  EXPECT_EQ(result.tokens_loaded[0], 40u);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (40 + 40 + (40 / 0.38 + 1)) / 3);
}

TEST(BatchedEngine, WhoWouldBeComputedBesideAnswersLoads) {
  Hardware hardware = plain_engine();
  hardware.tiers[0].read_bytes_per_s = 0.4;
  hardware.decode_s_per_sequence = 8;
  TieredOptions with = with_batching(hardware, {.chunk_slowdown = 2, .chunk_step_s = 0});
  with.warm_requests = 1;
  const std::vector<int> document(10, 1);
  const auto loaded = [&](std::uint32_t output_tokens) {
    const Trace trace = make_trace({{.ids = document, .output_tokens = 1},
                                    {.arrival_s = 100, .ids = {2}, .output_tokens = output_tokens},
                                    {.arrival_s = 105, .ids = document, .output_tokens = 1}});
    return batched(trace, with).tokens_loaded[0];
  };
  EXPECT_EQ(loaded(1), 0u) << "computing takes 40 s, reading 100";
  EXPECT_EQ(loaded(100), 40u) << "beside an answer computing takes 80 s, which are worth 133 of loading";
}

TEST(BatchedEngine, TiersReadBesideOneAnother) {
  Hardware hardware = plain_engine();
  hardware.tiers = {{"memory", 40, 0, 1.25, ""}, {"disk", kRoomForAll, 0, 0.8, ""}};
  TieredOptions with = with_batching(hardware, {.chunk_tokens = 1000});
  with.warm_requests = 2;
  std::vector<int> first(10, 1), both = first;
  both.insert(both.end(), 10, 2);
  const Trace trace = make_trace({{.ids = first}, {.arrival_s = 200, .ids = both}, {.arrival_s = 500, .ids = both}});
  const TieredResult result = batched(trace, with);
  EXPECT_EQ(result.tokens_loaded, (std::vector<std::uint64_t>{40, 40}))
      << "32 s and 50 beside one another; one after another, the front and computing the rest would be sooner, 72 s";
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, 50 + 1);
}

TEST(BatchedEngine, WhatIsLostCountsAsLater) {
  Hardware hardware = plain_engine();
  hardware.tiers[0].capacity_bytes = 40;
  hardware.tiers[0].read_bytes_per_s = 20 / 32.0;
  TieredOptions with = with_batching(hardware, {.chunk_tokens = 1000});
  with.planner = "shale";
  with.profiles = {{{"half", 1, 0.5, 0.5, 0}}};
  with.alpha = 12;
  with.warm_requests = 2;
  const std::vector<int> one(10, 1), other(10, 2);
  const Trace trace = make_trace({{.ids = one},
                                  {.arrival_s = 100, .ids = other},
                                  {.arrival_s = 200, .ids = one},
                                  {.arrival_s = 200, .ids = other}});
  const TieredResult result = batched(trace, with);
  EXPECT_EQ(result.tokens_loaded[0], 40u) << "32 s and a loss of 6 are less than 40 s of computing";
  EXPECT_EQ(result.tokens_computed, 40u) << "behind that, 64 s and 6 are more than what these are worth beside others";
}

TEST(BatchedEngine, ATierReadsForOneAfterAnother) {
  const std::vector<int> document(50, 1);
  std::vector<int> first = document, second = document;
  first.push_back(2);
  second.push_back(3);
  const Trace trace =
      make_trace({{.ids = document}, {.arrival_s = 1000, .ids = first}, {.arrival_s = 1000, .ids = second}});
  Hardware hardware = plain_engine();
  hardware.tiers[0].read_bytes_per_s = 10;
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(hardware, {})).ttft_mean_s, (200 + 24 + 44) / 3.0);
}

TEST(BatchedEngine, WhereATierHasAQueueComputingCanBeSooner) {
  const std::vector<int> document(50, 1);
  const MadeRequest again{.arrival_s = 1000, .ids = document};
  const Trace trace = make_trace({{.ids = document}, again, again, again, again});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {}));
  EXPECT_EQ(result.tokens_loaded[0], 600u) << "100 s of reading, but 400 behind three others";
  EXPECT_EQ(result.tokens_computed, 200u + 200);
}

TEST(BatchedEngine, WhatThePoolHoldsIsFoundThere) {
  const Trace trace =
      make_trace({{.ids = {1, 2}}, {.arrival_s = 100, .ids = {1, 2, 3}}, {.arrival_s = 200, .ids = {4}}});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = 100}));
  EXPECT_EQ(result.tokens_pooled, 8u);
  EXPECT_EQ(result.tokens_computed, 8u + 4 + 4);
  EXPECT_EQ(result.tokens_loaded[0], 0u);
}

TEST(BatchedEngine, WhatWasSaidIsFoundByTheNextTurn) {
  const Trace trace = make_trace({{.ids = {1, 2, 3}, .output_tokens = 4, .output_blocks = 1},
                                  {.arrival_s = 100, .ids = {1, 2, 3}},
                                  {.arrival_s = 200, .ids = {4, 5}},
                                  {.arrival_s = 300, .ids = {1, 2, 3, 6}}});
  for (const std::uint64_t pool_bytes : {0, 16, 100}) {
    const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = pool_bytes}));
    EXPECT_EQ(result.tokens_computed, 8u + 0 + 8 + 4) << pool_bytes;
    EXPECT_EQ(result.tokens_pooled, pool_bytes == 0 ? 0u : pool_bytes == 16 ? 12u + 8 : 24u);
    EXPECT_EQ(result.tokens_pooled + result.tokens_loaded[0], 24u);
    EXPECT_EQ(result.bytes_written[0], 12u + 8 + 4) << "each once";
  }
}

TEST(BatchedEngine, AnAnswerIsFoundOnceItIsComplete) {
  Hardware hardware = plain_engine();
  hardware.decode_s_per_sequence = 10;
  const Trace trace = make_trace({{.ids = {1, 2}, .output_tokens = 5, .output_blocks = 1},
                                  {.arrival_s = 20, .ids = {1, 2}},
                                  {.arrival_s = 100, .ids = {1, 2}}});
  EXPECT_EQ(batched(trace, with_batching(hardware, {.pool_bytes = 100})).tokens_computed, 4u + 4 + 0);
}

TEST(BatchedEngine, ThePoolDropsWhatWasUsedLongestAgo) {
  const auto ask = [](double at_s, int document) { return MadeRequest{.arrival_s = at_s, .ids = {document}}; };
  const Trace trace = make_trace({ask(0, 1), ask(100, 2), ask(200, 1), ask(300, 3), ask(400, 1), ask(500, 2)});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = 9}));
  EXPECT_EQ(result.tokens_pooled, 8u) << "the first document's, twice";
  EXPECT_EQ(result.tokens_loaded[0], 4u) << "the second's";
}

TEST(BatchedEngine, WhatFollowsAContextThatAnotherCachedIsCachedToo) {
  const Trace trace = make_trace({{.ids = {1, 2}}, {.ids = {1, 3}}, {.arrival_s = 100, .ids = {1, 3}}});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = 100}));
  EXPECT_EQ(result.tokens_pooled, 8u) << "both were computed together; the third finds all";
}

TEST(BatchedEngine, NothingOfWhatIsLargerThanThePoolStaysThere) {
  const Trace trace = make_trace({{.ids = {1, 2, 3}}, {.arrival_s = 100, .ids = {1, 2, 3}}});
  const TieredResult result = batched(trace, with_batching(plain_engine(), {.pool_bytes = 8}));
  EXPECT_EQ(result.tokens_pooled, 0u);
  EXPECT_EQ(result.tokens_loaded[0], 12u);
}

TEST(BatchedEngine, WhoDoesNotFitThePoolWaits) {
  const Trace trace = make_trace({{.ids = {1, 2}, .output_tokens = 1}, {.ids = {3, 4}, .output_tokens = 1}});
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(plain_engine(), {.chunk_tokens = 4, .pool_bytes = 100})).ttft_mean_s,
                   (8 + 16) / 2.0);
  Hardware slow = plain_engine();
  slow.decode_s_per_sequence = 1;
  Trace answers = trace;
  answers.requests[0].output_tokens = 11;
  EXPECT_DOUBLE_EQ(batched(answers, with_batching(slow, {.pool_bytes = 20})).ttft.p99, 8 + 10 + 8)
      << "until the answer's end";
}

TEST(BatchedEngine, WhatIsInNoBlockIsComputed) {
  Trace trace = make_trace({{.ids = {1, 2}}, {.arrival_s = 100, .ids = {1, 2}}});
  trace.requests[1].input_tokens = 11;
  const TieredResult result = batched(trace, with_batching(plain_engine(), {}));
  EXPECT_EQ(result.tokens, 8u + 11);
  EXPECT_EQ(result.tokens_computed, 8u + 3);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (8 + 4 + 3) / 2.0);
}

TEST(BatchedEngine, OnlySoManyRunTogether) {
  Hardware hardware = plain_engine();
  hardware.decode_s_per_sequence = 1;
  const Trace trace = make_trace({{.ids = {1}, .output_tokens = 6}, {.arrival_s = 1, .ids = {2}}});
  EXPECT_DOUBLE_EQ(batched(trace, with_batching(hardware, {.sequences_max = 1})).ttft.p99, 4 + 5 + 4 - 1);
}

TEST(BatchedEngine, TheFirstRequestsAreNotCounted) {
  const Trace trace = make_trace({{.ids = {1, 2}}, {.arrival_s = 100, .ids = {1, 2, 3}}});
  TieredOptions with = with_batching(plain_engine(), {});
  with.warm_requests = 1;
  const TieredResult result = batched(trace, with);
  EXPECT_EQ(result.requests, 1u);
  EXPECT_EQ(result.tokens, 12u);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, 4 + 4);
  with.batching.reset();
  EXPECT_DOUBLE_EQ(batched(trace, with).ttft_mean_s, 4 + 4);
  const auto stopped = simulate_tiers(trace, with, [](std::uint64_t) { return false; });
  EXPECT_EQ(stopped->requests, 0u);
  with.warm_requests = 2;
  EXPECT_EQ(simulate_tiers(trace, with).error().code, ErrorCode::kInvalidArgument);
}

TEST(BatchedEngine, EveryRequestIsAnsweredOnce) {
  Trace trace = random_trace(3, 300);
  for (std::size_t i = 0; i < trace.requests.size(); ++i)
    trace.requests[i].output_tokens = static_cast<std::uint32_t>(i * 7 % 13);
  Hardware hardware = plain_engine();
  hardware.decode_s_per_sequence = 0.1;
  for (const std::uint64_t pool_bytes : {0, 40, 400}) {
    const TieredResult result = batched(trace, with_batching(hardware, {.sequences_max = 3, .pool_bytes = pool_bytes}));
    EXPECT_EQ(result.requests, 300u) << "counted when they have their first token";
    std::uint64_t found = result.tokens_computed + result.tokens_pooled;
    for (const std::uint64_t tokens : result.tokens_loaded) found += tokens;
    EXPECT_EQ(found, result.tokens);
    EXPECT_GT(result.busy, 0);
    EXPECT_LE(result.busy, 1);
  }
}

TEST(BatchedEngine, SettingsThatMakeNoSenseAreRefused) {
  const Trace trace = make_trace({{.ids = {1}}});
  TieredOptions both = with_batching(plain_engine(), {});
  both.servers = 1;
  EXPECT_FALSE(simulate_tiers(trace, both));
  EXPECT_FALSE(simulate_tiers(trace, with_batching(plain_engine(), {.sequences_max = 0})));
  EXPECT_FALSE(simulate_tiers(trace, with_batching(plain_engine(), {.chunk_slowdown = -1})));
  Hardware negative = plain_engine();
  negative.step_s = -1;
  EXPECT_FALSE(simulate_tiers(trace, with_batching(negative, {})));
}

}  // namespace
}  // namespace shale::testing
