// What an engine does with tiers beside computing prompts: it loads from the back what it computes from the front, and
// moves while nobody is served.
#include <gtest/gtest.h>

#include "sim/made_trace.h"
#include "sim/tiered_cache.h"

namespace shale::testing {
namespace {

// A byte and a second a token; decoding costs nothing. The lowest tier has room for all.
TieredOptions engine_of(std::vector<SimulatedTier> tiers, const BatchingOptions& batching) {
  return {.hardware = {.name = "made",
                       .kv_bytes_per_token = 1,
                       .prefill_s_per_token = 1,
                       .prefill_s_per_pair = 0,
                       .source = "",
                       .tiers = std::move(tiers)},
          .planner = "lru",
          .batching = batching};
}
SimulatedTier tier(std::string name, double read_bytes_per_s, std::uint64_t bytes = ~std::uint64_t{0}) {
  return {std::move(name), bytes, 0, read_bytes_per_s, ""};
}

TieredResult counted(const Trace& trace, TieredOptions options, std::uint64_t warm) {
  options.warm_requests = warm;
  const auto result = simulate_tiers(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(TieredResult{});
}

// Blocks of four tokens, and so many tokens of a question behind them.
Trace asked(const std::vector<MadeRequest>& requests, std::uint32_t question) {
  Trace trace = make_trace(requests);
  for (TraceRequest& request : trace.requests) request.input_tokens += question;
  return trace;
}

// Reading takes as long as computing. The two chunks of 256 and 88 tokens at the end come after 88 and 344 s; the front
// is computed after 256.
TEST(ServedTogether, WhatTakesAsLongToLoadAsToComputeIsLoadedFromItsBack) {
  const std::vector<int> document(150, 1);
  const Trace trace = asked({{.ids = document}, {.arrival_s = 10'000, .ids = document}}, 3);
  const TieredResult result = counted(trace, engine_of({tier("disk", 1)}, {}), 1);
  EXPECT_EQ(result.tokens_computed, 256u + 3);
  EXPECT_EQ(result.tokens_loaded[0], 344u);
  EXPECT_EQ(result.bytes_read[0], 344u);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, 344 + 3);
}

TEST(ServedTogether, OfAPromptWithoutAQuestionTheLastTokenIsComputed) {
  const std::vector<int> document(150, 1);
  const Trace trace = asked({{.ids = document}, {.arrival_s = 10'000, .ids = document}}, 0);
  const TieredResult result = counted(trace, engine_of({tier("disk", 1)}, {}), 1);
  EXPECT_EQ(result.tokens_computed, 256u + 1);
  EXPECT_EQ(result.tokens_loaded[0], 343u);
}

// The other takes the engine after the first chunk, and more of the back is loaded meanwhile.
TEST(ServedTogether, OthersAreComputedBeforeWhatIsBeingLoaded) {
  const std::vector<int> document(300, 1), other(75, 2);
  const Trace trace =
      make_trace({{.ids = document}, {.arrival_s = 10'000, .ids = document}, {.arrival_s = 10'100, .ids = other}});
  const TieredResult result = counted(trace, engine_of({tier("disk", 1)}, {}), 1);
  EXPECT_EQ(result.tokens_loaded[0], 175u + 256 + 256);
  EXPECT_DOUBLE_EQ(result.ttft_mean_s, ((256 + 300 + 256 + 1) + (156 + 300)) / 2.0);
}

TEST(ServedTogether, WhatIsShortOrLossyOrLoadsFastIsNotComputedMeanwhile) {
  const auto again = [](std::size_t blocks) {
    const std::vector<int> document(blocks, 1);
    return asked({{.ids = document}, {.arrival_s = 10'000, .ids = document}}, 3);
  };
  EXPECT_EQ(counted(again(100), engine_of({tier("disk", 1)}, {}), 1).tokens_loaded[0], 0u) << "400 tokens";
  EXPECT_EQ(counted(again(150), engine_of({tier("disk", 10)}, {}), 1).tokens_computed, 3u);
  TieredOptions lossy = engine_of({tier("disk", 1)}, {});
  lossy.profiles = {{{"coded", 1, 0.9, 0.9, 0}}};
  lossy.planner = "fixed";
  lossy.fixed_method = "coded";
  EXPECT_EQ(counted(again(150), lossy, 1).tokens_computed, 3u);
}

// Memory has room for ten contexts, and has those that were asked ten times each, while the pool has ten others, asked
// fifty times, until a prompt takes all of it.
TEST(ServedTogether, WhileNobodyIsServedPlacementComesToRest) {
  std::vector<MadeRequest> requests;
  double at_s = 0;
  const auto ask = [&](int document, double after_s) {
    at_s += after_s;
    requests.push_back({.arrival_s = at_s, .ids = std::vector<int>(10, document)});
  };
  for (int document = 1; document <= 20; ++document) ask(document, 50);
  for (int round = 0; round < 60; ++round) {
    const int first = round < 10 ? 11 : 1;
    for (int document = first; document < first + 10; ++document) ask(document, 2);
  }
  at_s += 100;
  requests.push_back({.arrival_s = at_s, .ids = std::vector<int>(100, 21)});
  at_s += 10'000;
  const std::size_t warm = requests.size();
  for (int document = 1; document <= 10; ++document) ask(document, 0);
  TieredOptions options =
      engine_of({tier("memory", 1e6, 400), tier("disk", 1e4)}, {.sequences_max = 16, .pool_bytes = 400});
  options.planner = "shale";
  EXPECT_EQ(counted(make_trace(requests), options, warm).tokens_loaded[0], 400u) << "four a round";
}

// As exact KV two of them fit.
TEST(ServedTogether, WhatWasDroppedTakesNoRoomOfThePool) {
  TieredOptions options = engine_of({tier("disk", 1000)}, {.pool_bytes = 100});
  options.profiles = {{{"half", 0.5, 0.5, 0.9, 0}}};
  options.planner = "fixed";
  options.fixed_method = "half";
  options.fixed_keep = 0.5;
  std::vector<MadeRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back({.arrival_s = 100.0 * i, .ids = std::vector<int>(10, i % 4)});
  const TieredResult result = counted(make_trace(requests), options, 8);
  EXPECT_EQ(result.tokens_pooled, 160u);
  EXPECT_EQ(result.tokens_lossy, (TokensByForm{{{"half", 0.5}, 160}}));
}

TEST(ServedTogether, ContextsTakeProfilesOneAfterAnotherWhereTheyAreNotSpread) {
  TieredOptions options = engine_of({tier("disk", 1)}, {});
  options.profiles = {{{"coded", 1, 0.25, 1, 0}}, {{"coded", 1, 0.5, 1, 0}}, {{"coded", 1, 0.75, 1, 0}}};
  options.planner = "fixed";
  options.fixed_method = "coded";
  options.spread_profiles = false;
  for (const std::uint64_t seed : {0u, 1u, 2u}) {
    options.seed = seed;
    const Trace trace = make_trace({{.ids = {1}}, {.ids = {2, 2}}, {.ids = {3, 3, 3}}, {.ids = {4}}});
    EXPECT_EQ(counted(trace, options, 0).bytes_written[0], 1u + 4 + 9 + 1);
  }
}

}  // namespace
}  // namespace shale::testing
