#include "sim/tiered_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sim/contexts.h"
#include "sim/made_trace.h"
#include "sim/tiered_engine.h"
#include "sim/tiered_setup.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// A byte a token, a second a token computed; a fast small tier over a slow one.
Hardware machine(std::uint64_t memory_bytes, std::uint64_t remote_bytes = kUnlimited) {
  return {.name = "made",
          .kv_bytes_per_token = 100,
          .prefill_s_per_token = 1,
          .prefill_s_per_pair = 0,
          .source = "",
          .tiers = {{"memory", memory_bytes, 0.001, 10'000, ""}, {"remote", remote_bytes, 0.1, 500, ""}}};
}

TieredResult run(const Trace& trace, const TieredOptions& options) {
  const auto result = simulate_tiers(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(TieredResult{});
}

std::vector<std::uint64_t> sums(const Trace& trace) {
  std::vector<std::uint64_t> tokens;
  const Contexts contexts(trace);
  for (const Context& context : contexts.all()) tokens.push_back(context.tokens);
  return tokens;
}

TEST(Contexts, AreTheRunsThatNoPromptEntersLeavesOrEndsIn) {
  const Trace trace = make_trace({{.ids = {1, 2, 3, 4}}, {.ids = {1, 2, 5}}, {.ids = {1, 2}}, {.ids = {6, 7}}}, 4);
  const Contexts contexts(trace);
  EXPECT_EQ(sums(trace), (std::vector<std::uint64_t>{8, 8, 4, 8}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[0]).path, (std::vector<ContextId>{0, 1}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[1]).path, (std::vector<ContextId>{0, 2}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[2]).path, (std::vector<ContextId>{0}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[3]).path, (std::vector<ContextId>{3}));
  EXPECT_EQ(contexts.all()[2].first_token, 8);
  EXPECT_EQ(contexts.all()[2].parent, 0);
}

TEST(Contexts, CountTheTokensOfAPartialBlock) {
  Trace trace = make_trace({{.ids = {1, 2}}, {.ids = {1, 3}}}, 4);
  trace.requests[0].input_tokens = 5;
  EXPECT_EQ(sums(trace), (std::vector<std::uint64_t>{4, 1, 4}));
}

TEST(Contexts, EndWhereAnAnswerDoes) {
  const Trace trace =
      make_trace({{.ids = {1, 2, 3}, .output_tokens = 4, .output_blocks = 1}, {.ids = {1, 2, 3, 4}}, {.ids = {5}}}, 4);
  const Contexts contexts(trace);
  EXPECT_EQ(sums(trace), (std::vector<std::uint64_t>{8, 4, 4, 4}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[0]).path, (std::vector<ContextId>{0}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[0]).answer, (std::vector<ContextId>{1}));
  EXPECT_EQ(contexts.prompt(trace, trace.requests[1]).path, (std::vector<ContextId>{0, 1, 2}));
  EXPECT_TRUE(contexts.prompt(trace, trace.requests[1]).answer.empty());
}

TEST(SimulateTiers, LoadsWhatItStoredAndComputesTheRest) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 9, .ids = {1, 2, 3}}}, 4);
  const TieredResult result = run(trace, {.hardware = machine(kUnlimited), .planner = "lru"});
  EXPECT_EQ(result.tokens, 20);
  EXPECT_EQ(result.tokens_computed, 12);
  EXPECT_EQ(result.tokens_loaded, (std::vector<std::uint64_t>{8, 0}));
  EXPECT_EQ(result.bytes_read[0], 800);
  EXPECT_DOUBLE_EQ(result.ttft.p50, 0.001 + 0.08 + 4);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (8 + 0.001 + 0.08 + 4) / 2);
  EXPECT_DOUBLE_EQ(result.quality, 1);
}

// The first takes eight seconds.
TEST(SimulateTiers, WhatIsStillComputedIsNotFound) {
  for (const std::uint32_t servers : {0u, 2u}) {
    for (const double arrival_s : {0.0, 1.0, 7.9, 8.0}) {
      const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = arrival_s, .ids = {1, 2, 3}}}, 4);
      const TieredResult result = run(trace, {.hardware = machine(kUnlimited), .planner = "lru", .servers = servers});
      const bool there = arrival_s == 8;
      EXPECT_EQ(result.tokens_loaded[0], there ? 8u : 0u) << arrival_s;
      EXPECT_DOUBLE_EQ(result.ttft_mean_s, (8 + (there ? 0.001 + 0.08 + 4 : 12)) / 2) << arrival_s;
      EXPECT_EQ(result.bytes_written[0], 1'200u) << "each context once";
    }
  }
}

TEST(SimulateTiers, WhatWasSaidIsFoundByTheNextTurn) {
  Trace trace = make_trace(
      {{.ids = {1, 2, 3}, .output_tokens = 7, .output_blocks = 1}, {.arrival_s = 100, .ids = {1, 2, 3, 4}}}, 4);
  trace.requests[0].input_tokens = 9;  // one is in the answer's first block
  for (const std::uint32_t servers : {0u, 1u}) {
    const TieredResult result = run(trace, {.hardware = machine(kUnlimited), .planner = "lru", .servers = servers});
    EXPECT_EQ(result.tokens, 9u + 16);
    EXPECT_EQ(result.tokens_computed, 9u + 4);
    EXPECT_EQ(result.bytes_written[0], 1'600u);
  }
}

TEST(SimulateTiers, WhatWasSaidOfALossyPromptIsStored) {
  const Trace trace = make_trace({{.ids = {1}},
                                  {.arrival_s = 20, .ids = {1, 2}, .output_tokens = 4, .output_blocks = 1},
                                  {.arrival_s = 40, .ids = {1, 2}}},
                                 4);
  const TieredResult result = run(trace, {.hardware = machine(kUnlimited),
                                          .profiles = {{{"coded", 1, 0.5, 1, 0}}},
                                          .planner = "fixed",
                                          .fixed_method = "coded"});
  EXPECT_EQ(result.tokens_computed, 4u);
}

TEST(SimulateTiers, ComputesWhatIsInNoBlock) {
  Trace trace =
      make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 10, .ids = {1, 2}}, {.arrival_s = 20, .ids = {}}}, 4);
  trace.requests[1].input_tokens = 11;
  trace.requests[2].input_tokens = 2;
  const TieredResult result = run(trace, {.hardware = machine(kUnlimited), .planner = "lru"});
  EXPECT_EQ(result.tokens, 8u + 11 + 2);
  EXPECT_EQ(result.tokens_computed, 8u + 3 + 2);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, (8 + (0.001 + 0.08 + 3) + 2) / 3);
}

TEST(SimulateTiers, LoadsWhatIsDearWhereMoreFollows) {
  Hardware slow = machine(kUnlimited);
  for (SimulatedTier& tier : slow.tiers) tier.latency_s = 5;
  const Trace trace = make_trace(
      {{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 10, .ids = {1, 3}}, {.arrival_s = 20, .ids = {1, 2}}}, 4);
  const TieredResult result = run(trace, {.hardware = slow, .planner = "lru"});
  EXPECT_EQ(result.tokens_loaded, (std::vector<std::uint64_t>{8, 0}))
      << "five seconds are more than the first four tokens take, and less than all eight";
}

TEST(SimulateTiers, PrefillStoresNothing) {
  const Trace trace = random_trace(1, 200);
  const TieredResult result = run(trace, {.hardware = machine(kUnlimited), .planner = "prefill"});
  EXPECT_EQ(result.tokens_computed, result.tokens);
  EXPECT_EQ(result.bytes_written, (std::vector<std::uint64_t>{0, 0}));
}

// Compressing to a tenth costs little quality on one kind of context and much on another.
std::vector<ContextProfile> two_kinds() {
  return {{{"tough", 1, 0.25, 0.99, 1e-6}, {"impress", 0.5, 0.1, 0.95, 1e-6}},
          {{"tough", 1, 0.25, 0.80, 1e-6}, {"impress", 0.5, 0.1, 0.20, 1e-6}}};
}

TEST(SimulateTiers, AccountsForEveryToken) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    const Trace trace = random_trace(seed, 300);
    const double computed = run(trace, {.hardware = machine(kUnlimited), .planner = "prefill"}).ttft_mean_s;
    for (const auto planner : planner_names()) {
      for (const std::uint64_t remote : {std::uint64_t{6'000}, kUnlimited}) {
        const TieredResult result = run(trace, {.hardware = machine(3'000, remote),
                                                .profiles = two_kinds(),
                                                .planner = std::string(planner),
                                                .fixed_method = planner == "impress" ? "impress" : "tough",
                                                .fixed_keep = planner == "impress" ? 0.5 : 1,
                                                .alpha = 5});
        EXPECT_EQ(std::accumulate(result.tokens_loaded.begin(), result.tokens_loaded.end(), result.tokens_computed),
                  result.tokens);
        EXPECT_LE(result.ttft_mean_s, computed * (1 + 1e-12)) << planner;
        EXPECT_GT(result.quality, 0.2);
        EXPECT_LE(result.quality, 1 + 1e-12);
      }
    }
  }
}

// Documents that are asked for whole: nothing is computed on what was loaded.
Trace whole_documents(unsigned requests) {
  std::vector<MadeRequest> made;
  for (unsigned i = 0; i < requests; ++i) {
    const int document = static_cast<int>(std::min(i * 7 % 12, i * 5 % 11));
    made.push_back({.arrival_s = i * 40.0, .ids = std::vector<int>(1 + document % 9, document)});
  }
  return make_trace(made);
}

TEST(SimulateTiers, AQualityWorthMoreThanAnyTimeIsKept) {
  const Trace trace = whole_documents(300);
  TieredOptions options{.hardware = machine(3'000), .profiles = two_kinds(), .planner = "shale", .alpha = 1e6};
  EXPECT_DOUBLE_EQ(run(trace, options).quality, 1);
  const double careful = run(trace, options).ttft_mean_s;
  options.alpha = 1;
  EXPECT_LT(run(trace, options).ttft_mean_s, careful);
  EXPECT_LT(run(trace, options).quality, 1);
}

TEST(SimulateTiers, PlannersGoByTheExpectedQualityAndAnswersHaveTheirOwn) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 10, .ids = {1, 2}}}, 4);
  const auto at = [&](double quality, double expected) {
    return run(trace, {.hardware = machine(0, 10'000),
                       .profiles = {{{"tough", 1, 0.25, quality, 0, expected}}},
                       .planner = "shale",
                       .alpha = 3});
  };
  EXPECT_EQ(at(0.2, 0.99).bytes_read[1], 200u);
  EXPECT_DOUBLE_EQ(at(0.2, 0.99).quality, 0.6);
  EXPECT_EQ(at(0.99, 0.2).bytes_read[1], 800u);
  EXPECT_DOUBLE_EQ(at(0.99, 0.2).quality, 1);
}

// As on the server: where the lowest tier is not bounded, compressing there would free nothing.
TEST(SimulateTiers, OnlyABoundedLowestTierHoldsLossyForms) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 10, .ids = {1, 2}}}, 4);
  TieredOptions options{.hardware = machine(0), .profiles = {{{"tough", 1, 0.25, 0.99, 0}}}, .planner = "shale"};
  EXPECT_EQ(run(trace, options).bytes_read[1], 800u);
  EXPECT_DOUBLE_EQ(run(trace, options).quality, 1);
  options.hardware = machine(0, 10'000);
  EXPECT_EQ(run(trace, options).bytes_read[1], 200u);
  EXPECT_DOUBLE_EQ(run(trace, options).quality, 0.995);
  options.hardware = machine(0);
  options.planner = "fixed";
  options.fixed_method = "tough";
  EXPECT_DOUBLE_EQ(run(trace, options).quality, 0.995) << "it stores nothing exact";
}

using Bytes = std::vector<std::uint64_t>;

// There is room for one of them in memory.
Trace two_documents() { return make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 10, .ids = {3, 4}}}, 4); }

TEST(SimulateTiers, WhatHasACopyBelowGoesThereForNothing) {
  const TieredResult result = run(two_documents(), {.hardware = machine(800), .planner = "lru"});
  EXPECT_EQ(result.bytes_read, (Bytes{0, 0}));
  EXPECT_EQ(result.bytes_written, (Bytes{1'600, 1'600}));
}

TEST(SimulateTiers, AnotherMethodIsReadAndWrittenWhereItLies) {
  const TieredResult result =
      run(two_documents(),
          {.hardware = machine(800), .profiles = {{{"half", 1, 0.5, 0.99, 0}}}, .planner = "shale", .alpha = 10});
  EXPECT_EQ(result.bytes_read, (Bytes{800, 0})) << "the first is compressed where it lies";
  EXPECT_EQ(result.bytes_written, (Bytes{800 + 400 + 400, 1'600}));
}

// Memory has room for what was asked for twice. A byte there saves 1e-10 s, so that what is asked for instead rises
// after two accesses more where moves cost nothing, and after ten more where a byte costs 1e-9.
TEST(SimulateTiers, WhatRisesHasToSaveWhatMovingItCosts) {
  const auto written = [](int times, double move_s_per_byte) {
    std::vector<MadeRequest> requests(2, {.ids = {1, 2}});
    requests.insert(requests.end(), static_cast<std::size_t>(times), {.ids = {3, 4}});
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].arrival_s = static_cast<double>(i);
    Hardware hardware = machine(800);
    hardware.prefill_s_per_token = 0.001;
    hardware.tiers[0] = {"memory", 800, 0, 1e13, ""};
    hardware.tiers[1] = {"remote", kUnlimited, 0, 1e10, ""};
    return run(make_trace(requests, 4),
               {.hardware = hardware, .planner = "shale", .half_life_s = 1e9, .move_s_per_byte = move_s_per_byte})
        .bytes_written[0];
  };
  EXPECT_EQ(written(2, 0), 800u);
  EXPECT_EQ(written(10, 0), 1'600u);
  EXPECT_EQ(written(10, TieredOptions().move_s_per_byte), 800u);
  EXPECT_EQ(written(20, TieredOptions().move_s_per_byte), 1'600u);
}

TEST(SimulateTiers, CopiesAreWrittenWhereABoundedLowestTierHasRoom) {
  const Trace one = make_trace({{.ids = {1, 2}}}, 4);
  EXPECT_EQ(run(one, {.hardware = machine(800, 800), .planner = "lru"}).bytes_written, (Bytes{800, 800}));
  EXPECT_EQ(run(one, {.hardware = machine(800, 799), .planner = "lru"}).bytes_written, (Bytes{800, 0}));
}

// The second goes down in place of the first's copy, and the first then has to be written again.
TEST(SimulateTiers, ACopyThatWasDroppedDoesNotComeBack) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}},
                                  {.arrival_s = 10, .ids = {3, 4}},
                                  {.arrival_s = 20, .ids = {1, 2}},
                                  {.arrival_s = 30, .ids = {5, 6}},
                                  {.arrival_s = 40, .ids = {7, 8}}},
                                 4);
  const TieredResult result = run(trace, {.hardware = machine(1'600, 800), .planner = "lru"});
  EXPECT_EQ(result.tokens_loaded, (Bytes{8, 0}));
  EXPECT_EQ(result.bytes_read, (Bytes{3 * 800, 0})) << "by the third request, and by both moves";
  EXPECT_EQ(result.bytes_written, (Bytes{4 * 800, 3 * 800}));
}

// Lossy is what was encoded, also where answers over it were as good.
TEST(SimulateTiers, WhatIsComputedBehindALossyBeginningIsStoredAndNeverExact) {
  const Trace trace = make_trace(
      {{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 20, .ids = {1, 2, 3}}, {.arrival_s = 40, .ids = {1, 2, 3}}}, 4);
  TieredOptions options{.hardware = machine(kUnlimited),
                        .profiles = {{{"coded", 1, 0.5, 1, 0}}},
                        .planner = "fixed",
                        .fixed_method = "coded"};
  EXPECT_EQ(run(trace, options).tokens_computed, 8u + 4);
  options.planner = "lru";
  EXPECT_EQ(run(trace, options).tokens_computed, 8u + 4);

  const Contexts contexts(trace);
  options.planner = "fixed";
  const auto setup = TieredSetup::make(options);
  ASSERT_TRUE(setup);
  TieredEngine engine(contexts, options, *setup);
  for (const TraceRequest& request : trace.requests) {
    const Prompt prompt = contexts.prompt(trace, request);
    const Served served = engine.look_up(prompt, request.arrival_s);
    EXPECT_EQ(served.exact(), request.arrival_s == 0);
    engine.finish(prompt.path, served, request.arrival_s, true);
  }
  const Served whole = engine.look_up(contexts.prompt(trace, trace.requests[2]), 60);
  EXPECT_EQ(whole.computed_tokens, 0u);
  EXPECT_FALSE(whole.parts.back().exact);
}

TEST(SimulateTiers, MemoryThatHoldsMoreIsFaster) {
  const Trace trace = random_trace(9, 400);
  double before = 1e9;
  for (const std::uint64_t memory : {500u, 2'000u, 8'000u, 1'000'000u}) {
    const double mean = run(trace, {.hardware = machine(memory), .planner = "lru"}).ttft_mean_s;
    EXPECT_LT(mean, before);
    before = mean;
  }
}

// Three prompts of eight tokens, a second a token, come at 0, 1 and 20 seconds.
TEST(SimulateTiers, WhereServersAreFewRequestsWait) {
  const Trace trace = make_trace(
      {{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 1, .ids = {3, 4}}, {.arrival_s = 20, .ids = {5, 6}}}, 4);
  const auto with = [&](std::uint32_t servers) {
    return run(trace, {.hardware = machine(kUnlimited), .planner = "prefill", .servers = servers});
  };
  EXPECT_DOUBLE_EQ(with(0).ttft_mean_s, 8);
  EXPECT_DOUBLE_EQ(with(1).ttft_mean_s, (8 + 15 + 8) / 3.0);
  EXPECT_DOUBLE_EQ(with(1).busy, 24 / 28.0);
  EXPECT_DOUBLE_EQ(with(2).ttft_mean_s, 8);
  EXPECT_DOUBLE_EQ(with(2).busy, 12 / 28.0);
}

// All come at once, so that those that are not counted have their first tokens when counting has begun.
TEST(SimulateTiers, WhatIsNotCountedMovesNoBytesEither) {
  for (const auto& batching : {std::optional<BatchingOptions>(), std::optional<BatchingOptions>(BatchingOptions())}) {
    TieredOptions with = {.hardware = machine(kUnlimited), .planner = "lru", .batching = batching};
    const TieredResult alone = run(make_trace({{.ids = {5, 6}}}, 4), with);
    with.warm_requests = 2;
    const TieredResult behind = run(make_trace({{.ids = {1, 2}}, {.ids = {3, 4}}, {.ids = {5, 6}}}, 4), with);
    EXPECT_EQ(behind.requests, 1);
    EXPECT_GT(alone.bytes_written[0], 0u);
    EXPECT_EQ(behind.bytes_written, alone.bytes_written);
  }
}

TEST(SimulateTiers, RefusesWhatMakesNoSense) {
  const Trace trace = random_trace(1, 5);
  const auto refused = [&](const TieredOptions& options) {
    const auto result = simulate_tiers(trace, options);
    return !result && result.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.hardware = {}}));
  EXPECT_TRUE(refused({.hardware = machine(1), .planner = "none such"}));
  EXPECT_TRUE(refused({.hardware = machine(1), .planner = "fixed", .fixed_method = "none such"}));
  EXPECT_TRUE(refused({.hardware = machine(1), .planner = "impress"}));
  EXPECT_TRUE(refused({.hardware = machine(1), .servers = ~0u}));
  EXPECT_TRUE(refused({.hardware = machine(1), .profiles = {{{"m", 2, 1, 1, 0}}}}));
  Hardware stuck = machine(1);
  stuck.tiers[0].read_bytes_per_s = 0;
  EXPECT_TRUE(refused({.hardware = stuck}));
  EXPECT_FALSE(hardware_preset("none such"));
  for (const auto& name : hardware_names()) EXPECT_FALSE(refused({.hardware = *hardware_preset(name)})) << name;
}

// It would store nothing.
TEST(SimulateTiers, AKeepThatAProfileDoesNotHaveIsRefused) {
  const ContextProfile both = {{"m", 0.5, 0.5, 0.9, 0}, {"m", 0.25, 0.25, 0.8, 0}}, half = {{"m", 0.5, 0.5, 0.9, 0}};
  const auto said = [&](std::vector<ContextProfile> profiles, const char* planner, double keep) {
    const auto result = simulate_tiers(random_trace(1, 5), {.hardware = machine(1'000),
                                                            .profiles = std::move(profiles),
                                                            .planner = planner,
                                                            .fixed_method = "m",
                                                            .fixed_keep = keep});
    return result ? std::string() : result.error().message;
  };
  for (const char* planner : {"fixed", "impress"}) {
    EXPECT_EQ(said({both, both}, planner, 0.25), "");
    EXPECT_THAT(said({both, both}, planner, 1),
                HasSubstr("profile 1 has no row of method 'm' at keep 1; it has 0.5, 0.25"));
    EXPECT_THAT(said({both, half}, planner, 0.25),
                HasSubstr("profile 2 has no row of method 'm' at keep 0.25; it has 0.5"));
    EXPECT_THAT(said({both, {}}, planner, 0.5), HasSubstr("profile 2 has no row"));
  }
}

TEST(SimulateTiers, StopsWhenAskedTo) {
  const auto result = simulate_tiers(random_trace(1, 1000), {.hardware = machine(1)},
                                     [](std::uint64_t requests) { return requests < 500; });
  EXPECT_GE(result->requests, 500);
  EXPECT_LT(result->requests, 1000);
}

}  // namespace
}  // namespace shale::testing
