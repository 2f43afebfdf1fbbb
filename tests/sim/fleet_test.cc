#include "sim/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sim/made_trace.h"
#include "sim/shared_store.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// 100 bytes a token, 10 ms a token computed; a fast small tier over a slower shared one.
Hardware machine(std::uint64_t memory_bytes) {
  return {.name = "made",
          .kv_bytes_per_token = 100,
          .prefill_s_per_token = 0.01,
          .prefill_s_per_pair = 0,
          .source = "",
          .tiers = {{"memory", memory_bytes, 1e-4, 1e7, ""}, {"remote", kUnlimited, 1e-3, 1e6, ""}}};
}

FleetOptions fleet(std::uint32_t engines, FleetRouter router, std::uint64_t memory_bytes = 3'000,
                   std::uint32_t servers = 1) {
  FleetOptions options;
  options.engine = {.hardware = machine(memory_bytes), .planner = "lru", .servers = servers};
  options.engines = engines;
  options.router = router;
  return options;
}

FleetResult run(const Trace& trace, const FleetOptions& options) {
  const auto result = simulate_fleet(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(FleetResult{});
}

std::uint64_t loaded(const FleetResult& result) {
  return std::accumulate(result.all.tokens_loaded.begin(), result.all.tokens_loaded.end(), std::uint64_t{0});
}

TEST(SimulateFleet, OneEngineIsWhatSimulateTiersSays) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    Trace trace = random_trace(seed, 300);
    for (std::uint32_t i = 0; i < 300; i += 3) trace.requests[i].input_tokens += i % 5;  // in no block
    for (const char* planner : {"prefill", "lru", "lfu", "shale"}) {
      for (const std::uint32_t servers : {0u, 1u, 3u}) {
        for (const FleetRouter router :
             {FleetRouter::kRoundRobin, FleetRouter::kPrefix, FleetRouter::kOverlap, FleetRouter::kEvents}) {
          FleetOptions options = fleet(1, router, 3'000, servers);
          options.engine.planner = planner;
          const TieredResult one = simulate_tiers(trace, options.engine).value();
          const FleetResult all = run(trace, options);
          EXPECT_EQ(all.all.tokens_loaded, one.tokens_loaded) << planner;
          EXPECT_EQ(all.all.tokens, one.tokens);
          EXPECT_EQ(all.all.tokens_computed, one.tokens_computed);
          EXPECT_NEAR(all.all.ttft_mean_s, one.ttft_mean_s, 1e-9);
          EXPECT_NEAR(all.all.ttft.p99, one.ttft.p99, 1e-9);
          EXPECT_NEAR(all.all.busy, one.busy, 1e-9);
          EXPECT_EQ(all.busiest_share, 1);
        }
      }
    }
  }
}

TEST(SimulateFleet, WhatOneStoredAnotherFinds) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 1, .ids = {1, 2, 3}}}, 100);
  FleetOptions options = fleet(2, FleetRouter::kRoundRobin, 1'000'000);
  FleetResult result = run(trace, options);
  EXPECT_EQ(result.all.tokens_loaded,
            (std::vector<std::uint64_t>{0, 0}));  // it was not there yet, two seconds later it is
  options.speed = 0.1;
  result = run(trace, options);
  EXPECT_EQ(result.all.tokens_loaded, (std::vector<std::uint64_t>{0, 200}));
  EXPECT_NEAR(result.all.ttft.p50, 1e-3 + 0.02 + 1, 1e-9);
  EXPECT_EQ(result.all.bytes_written[1], 300u * 100);  // each context once
  EXPECT_EQ(result.store_bytes, 300u * 100);
  options.shares = false;
  EXPECT_EQ(run(trace, options).all.tokens_computed, 500u);
}

// Computing one of 100 tokens takes a second; the long prompt has three.
TEST(SimulateFleet, AShortPromptNeedNotWaitForALongOne) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2, 3}},
                                  {.arrival_s = 0.5, .ids = {4}},
                                  {.arrival_s = 0.6, .ids = {5, 6}},
                                  {.arrival_s = 0.7, .ids = {7}}},
                                 100);
  FleetOptions options = fleet(1, FleetRouter::kEvents);
  EXPECT_NEAR(run(trace, options).all.ttft_mean_s, (3 + 3.5 + 5.4 + 6.3) / 4, 1e-9);
  options.scheduling = EngineScheduling::kSrpt;
  FleetResult result = run(trace, options);
  // The first is one step, until 3; then 4 until 4, 7 until 5, and the two of the third until 7.
  EXPECT_NEAR(result.all.ttft_mean_s, (3 + 3.5 + 6.4 + 4.3) / 4, 1e-9);
  EXPECT_NEAR(result.all.busy, 1, 1e-9);
  options.step_tokens = 50;
  // 4 until 1.5, 7 until 2.5, then what arrived at 0.6 until 4.5, and the rest of the first.
  EXPECT_NEAR(run(trace, options).all.ttft_mean_s, (1 + 1.8 + 3.9 + 7) / 4, 1e-9);
  options.engine.servers = 2;
  // 4 as it arrives, until 1.5; 7 after a step of the first, from 1 until 2; what arrived at 0.6 behind 4, until 3.5;
  // and the rest of the first behind 7.
  EXPECT_NEAR(run(trace, options).all.ttft_mean_s, (1 + 1.3 + 2.9 + 4) / 4, 1e-9);
}

// Computing one takes a second, and the second computes from 1 to 2 what the third asks for.
TEST(SimulateFleet, NobodyFindsWhatIsNotComputedYet) {
  const Trace trace =
      make_trace({{.arrival_s = 0, .ids = {1}}, {.arrival_s = 0.1, .ids = {2}}, {.arrival_s = 0.2, .ids = {2}}}, 100);
  for (const EngineScheduling scheduling : {EngineScheduling::kFcfs, EngineScheduling::kSrpt}) {
    FleetOptions options = fleet(1, FleetRouter::kEvents, 1'000'000);
    options.scheduling = scheduling;
    const FleetResult result = run(trace, options);
    EXPECT_EQ(result.all.tokens_computed, 200u);
    EXPECT_NEAR(result.all.ttft_mean_s, (1 + 1.9 + 1.8 + 1e-4 + 1e-3) / 3, 1e-9) << "the third loads what it computed";
    options.engine.servers = 3;
    EXPECT_EQ(run(trace, options).all.tokens_computed, 300u) << "together";
  }
}

// Of 3 s before the first has its first token, and of none then: it goes before one of 2 s.
TEST(SimulateFleet, WhatAnotherComputedMeanwhileMakesAShorterOne) {
  const Trace trace = make_trace(
      {{.arrival_s = 0, .ids = {1, 2, 3}}, {.arrival_s = 0.1, .ids = {4, 5}}, {.arrival_s = 0.2, .ids = {1, 2, 3}}},
      100);
  FleetOptions options = fleet(1, FleetRouter::kEvents, 1'000'000);
  options.scheduling = EngineScheduling::kSrpt;
  EXPECT_NEAR(run(trace, options).all.ttft_mean_s, (3 + 4.9 + 2.8) / 3, 3e-3);
}

// A prompt of 10 s, and one of 1 s each second: it is overtaken for 36 s, (10 - 1) / 0.25, as on a server.
TEST(SimulateFleet, ALongPromptIsNotOvertakenForEver) {
  std::vector<MadeRequest> requests = {{.arrival_s = 0, .ids = {0}}, {.arrival_s = 0, .ids = std::vector<int>(10, 1)}};
  for (int i = 1; i <= 97; ++i) requests.push_back({.arrival_s = i * 1.0, .ids = {i + 1}});
  FleetOptions options = fleet(1, FleetRouter::kEvents);
  options.scheduling = EngineScheduling::kSrpt;
  const FleetResult result = run(make_trace(requests, 100), options);
  EXPECT_NEAR(result.all.ttft.p99, 37 + 10, 1);
  EXPECT_NEAR(result.all.ttft.p50, 11, 1) << "and then all wait for it";
}

// They arrive together: the longer one has begun no step.
TEST(SimulateFleet, AShorterOneThatArrivesAtTheSameTimeIsFirst) {
  const Trace trace = make_trace({{.arrival_s = 5.1, .ids = {1, 2, 3, 4}}, {.arrival_s = 5.1, .ids = {5}}}, 100);
  FleetOptions options = fleet(1, FleetRouter::kEvents);
  options.scheduling = EngineScheduling::kSrpt;
  options.step_tokens = 100;
  EXPECT_NEAR(run(trace, options).all.ttft_mean_s, (1 + 5) / 2.0, 1e-6);
}

// Both arrive at the only engine that has anything of theirs, though another is idle; where nobody has, at the one with
// the fewest running.
TEST(SimulateFleet, OverlapSendsWhereMostLiesWhateverWaitsThere) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1}},
                                  {.arrival_s = 0.5, .ids = {2}},
                                  {.arrival_s = 5, .ids = {2, 3}},
                                  {.arrival_s = 5.1, .ids = {2, 4}},
                                  {.arrival_s = 5.2, .ids = {1}}},
                                 100);
  FleetOptions options = fleet(2, FleetRouter::kOverlap, 1'000'000);
  FleetResult result = run(trace, options);
  EXPECT_EQ(result.busiest_share, 0.6);
  EXPECT_EQ(result.all.tokens_loaded, (std::vector<std::uint64_t>{300, 0}));
  EXPECT_NEAR(result.all.ttft_mean_s, (1 + 1 + 1 + 1.9 + 0) / 5, 2e-3);
  options.engine.hardware.tiers[0].capacity_bytes = 0;  // all of it is shared: nobody holds anything
  result = run(trace, options);
  EXPECT_EQ(result.busiest_share, 0.6);
  EXPECT_EQ(result.all.tokens_loaded, (std::vector<std::uint64_t>{0, 300}));
}

TEST(SimulateFleet, WhateverIsServedFirstTheWorkIsTheSame) {
  const Trace trace = random_trace(4, 300);
  for (const std::uint32_t servers : {1u, 2u, 5u}) {
    FleetOptions options = fleet(3, FleetRouter::kRoundRobin, 3'000, servers);
    options.engine.planner = "prefill";
    options.speed = 100;
    const FleetResult in_order = run(trace, options);
    options.scheduling = EngineScheduling::kSrpt;
    const FleetResult shortest = run(trace, options);
    EXPECT_EQ(shortest.all.requests, in_order.all.requests);
    EXPECT_EQ(shortest.all.tokens_computed, in_order.all.tokens_computed);
    EXPECT_LT(shortest.all.ttft_mean_s, in_order.all.ttft_mean_s);
  }
}

TEST(SimulateFleet, AccountsForEveryTokenAndIsTheSameAgain) {
  const Trace trace = random_trace(5, 300);
  for (const FleetRouter router :
       {FleetRouter::kRoundRobin, FleetRouter::kPrefix, FleetRouter::kOverlap, FleetRouter::kEvents}) {
    const FleetResult first = run(trace, fleet(4, router)), again = run(trace, fleet(4, router));
    EXPECT_EQ(loaded(first) + first.all.tokens_computed, first.all.tokens);
    EXPECT_EQ(first.all.requests, trace.requests.size());
    EXPECT_EQ(first.all.ttft_mean_s, again.all.ttft_mean_s);
    EXPECT_EQ(first.network_bytes, again.network_bytes);
    EXPECT_EQ(first.network_bytes, first.all.bytes_read[1] + first.all.bytes_written[1]);
  }
}

// There is room for two of them, and no engine's memory has any: 2 leaves for 3 as 1 was read since, then 3 for 2.
TEST(SimulateFleet, AFullStoreEvictsWhatWasLeastRecentlyUsed) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1}},
                                  {.arrival_s = 10, .ids = {2}},
                                  {.arrival_s = 20, .ids = {1}},
                                  {.arrival_s = 30, .ids = {3}},
                                  {.arrival_s = 40, .ids = {1}},
                                  {.arrival_s = 50, .ids = {2}}},
                                 100);
  for (const std::uint32_t engines : {1u, 2u}) {
    FleetOptions options = fleet(engines, FleetRouter::kRoundRobin);
    options.store_bytes_max = 2 * 100 * 100;
    const FleetResult result = run(trace, options);
    EXPECT_EQ(result.all.tokens_loaded, (std::vector<std::uint64_t>{0, 200}));
    EXPECT_EQ(result.all.tokens_computed, 400u);
    EXPECT_EQ(result.evicted_bytes, 2u * 100 * 100);
    EXPECT_EQ(result.store_bytes, options.store_bytes_max);
  }
}

// 1 is too large for it; what lies in memory needs no store.
TEST(SimulateFleet, WhatTheStoreCannotHoldIsComputedUnlessMemoryHasIt) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1}}, {.arrival_s = 10, .ids = {1}}}, 100);
  FleetOptions options = fleet(1, FleetRouter::kEvents);
  options.store_bytes_max = 9'999;
  EXPECT_EQ(run(trace, options).all.tokens_computed, 200u);
  EXPECT_EQ(run(trace, options).network_bytes, 0u);
  options = fleet(1, FleetRouter::kEvents, 10'000);
  options.store_bytes_max = 9'999;
  EXPECT_EQ(run(trace, options).all.tokens_loaded, (std::vector<std::uint64_t>{100, 0}));
}

TEST(SimulateFleet, AStoreWithRoomForAllIsOneWithoutBound) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    const Trace trace = random_trace(seed, 400);
    for (const char* planner : {"lru", "lfu", "shale"}) {
      FleetOptions options = fleet(4, FleetRouter::kEvents);
      options.engine.planner = planner;
      const FleetResult unbounded = run(trace, options);
      options.store_bytes_max = unbounded.store_bytes;
      const FleetResult enough = run(trace, options);
      EXPECT_EQ(enough.all.tokens_loaded, unbounded.all.tokens_loaded);
      EXPECT_EQ(enough.all.ttft_mean_s, unbounded.all.ttft_mean_s);
      EXPECT_EQ(enough.evicted_bytes, 0u);
      options.store_bytes_max = unbounded.store_bytes / 8;
      const FleetResult small = run(trace, options);
      EXPECT_LE(small.store_bytes, options.store_bytes_max);
      EXPECT_GT(small.evicted_bytes, 0u);
      EXPECT_GT(small.all.tokens_computed, unbounded.all.tokens_computed);
      EXPECT_EQ(loaded(small) + small.all.tokens_computed, small.all.tokens);
      EXPECT_EQ(small.network_bytes, small.all.bytes_read[1] + small.all.bytes_written[1]);
      EXPECT_EQ(small.store_bytes + small.evicted_bytes, small.all.bytes_written[1]);
    }
  }
}

TEST(SimulateFleet, WhoSendsByPrefixFindsMoreNearby) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = random_trace(seed, 400);
    const auto in_memory = [&](FleetRouter router) {
      return run(trace, fleet(4, router, 2'000, 0)).all.tokens_loaded[0];
    };
    const std::uint64_t blind = in_memory(FleetRouter::kRoundRobin);
    EXPECT_GE(in_memory(FleetRouter::kPrefix), blind) << seed;
    EXPECT_GE(in_memory(FleetRouter::kEvents), blind) << seed;
  }
}

TEST(SimulateFleet, WithoutASharedStoreRoutersMatterMore) {
  const Trace trace = random_trace(2, 400);
  FleetOptions options = fleet(4, FleetRouter::kRoundRobin, 2'000);
  options.shares = false;
  const std::uint64_t blind = run(trace, options).all.tokens_computed;
  options.router = FleetRouter::kEvents;
  EXPECT_LT(run(trace, options).all.tokens_computed, blind);
  options.shares = true;
  EXPECT_LE(run(trace, options).all.tokens_computed, blind);
}

TEST(SimulateFleet, ANetworkThatIsTooNarrowIsTheLimit) {
  const Trace trace = random_trace(3, 400);
  FleetOptions options = fleet(8, FleetRouter::kRoundRobin, 500);
  options.speed = 20;
  const FleetResult wide = run(trace, options);
  EXPECT_EQ(wide.network_busy, 0);
  EXPECT_GT(wide.network_peak_bytes_per_s, 0);
  options.network_bytes_per_s = wide.network_mean_bytes_per_s / 2;
  const FleetResult narrow = run(trace, options);
  EXPECT_LE(narrow.network_peak_bytes_per_s, options.network_bytes_per_s * (1 + 1e-9));
  EXPECT_GT(narrow.network_busy, 0.3);
  EXPECT_LE(narrow.network_busy, 1);
  EXPECT_GT(narrow.all.ttft_mean_s, wide.all.ttft_mean_s);
  EXPECT_GT(narrow.all.tokens_computed, wide.all.tokens_computed);  // computing is sooner than waiting for it
}

TEST(SharedStore, ThePeakIsOfWhatPassesNotOfWhatIsAskedFor) {
  SharedStore store(1, 100, 0);
  for (int i = 0; i < 2; ++i) store.transfer(1'000, 0);
  EXPECT_DOUBLE_EQ(store.peak_bytes_per_s(), 100);
  EXPECT_DOUBLE_EQ(store.busy_until_s(), 20);
  store.transfer(500, 46);  // 400 of them before 50
  EXPECT_DOUBLE_EQ(store.peak_bytes_per_s(), 100);
  SharedStore slow(1, 100, 0);
  slow.transfer(500, 6);
  EXPECT_DOUBLE_EQ(slow.peak_bytes_per_s(), 40);
  slow.transfer(10'000, 15);
  EXPECT_DOUBLE_EQ(slow.peak_bytes_per_s(), 100) << "from 20 on";
  SharedStore unlimited(1, 0, 0);
  for (int i = 0; i < 2; ++i) unlimited.transfer(1'000, 0);
  EXPECT_DOUBLE_EQ(unlimited.peak_bytes_per_s(), 200);
}

TEST(SimulateFleet, TimesMayBeFarApart) {
  const Trace trace = make_trace(
      {{.arrival_s = 0, .ids = {1}}, {.arrival_s = 25, .ids = {2, 3}}, {.arrival_s = 1e18, .ids = {4}}}, 100);
  const FleetResult result = run(trace, fleet(1, FleetRouter::kEvents));
  EXPECT_EQ(result.network_bytes, 4u * 100 * 100);
  EXPECT_DOUBLE_EQ(result.network_peak_bytes_per_s, 2 * 100 * 100 / 10.0);
}

TEST(SimulateFleet, RefusesWhatMakesNoSense) {
  const Trace trace = random_trace(1, 10);
  const auto refused = [&](const std::function<void(FleetOptions&)>& change) {
    FleetOptions options = fleet(2, FleetRouter::kEvents);
    change(options);
    const auto result = simulate_fleet(trace, options);
    return result ? std::string() : result.error().message;
  };
  EXPECT_THAT(refused([](FleetOptions& options) { options.engines = 0; }), HasSubstr("give 1 to 256"));
  EXPECT_THAT(refused([](FleetOptions& options) { options.engines = 257; }), HasSubstr("give 1 to 256"));
  EXPECT_THAT(refused([](FleetOptions& options) { options.speed = 0; }), HasSubstr("above 0"));
  EXPECT_THAT(refused([](FleetOptions& options) { options.step_tokens = 0; }), HasSubstr("1 or more"));
  EXPECT_THAT(refused([](FleetOptions& options) { options.engine.hardware.tiers[1].capacity_bytes = 5; }),
              HasSubstr("the shared tier, remote, is bounded"));
  EXPECT_THAT(refused([](FleetOptions& options) { options.engine.profiles = {{}}; }), HasSubstr("exact"));
}

}  // namespace
}  // namespace shale::testing
