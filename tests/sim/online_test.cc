// Requests that wait for a server: times worked out by hand, and every choice against the definition.
#include <gtest/gtest.h>

#include "sim/made_trace.h"
#include "sim/simulate.h"

namespace shale::testing {
namespace {

// Blocks of 4 tokens: a computed block takes 4 s, a cached one 0.4 s.
constexpr ServiceModel kOneServer{.prefill_tokens_per_s = 1, .cached_tokens_per_s = 10, .servers = 1};

WaitingTimes times(const Trace& trace, SimulationOptions options) {
  if (!options.service) options.service = kOneServer;
  const auto result = simulate(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result->times.value();
}

TEST(Online, TimesAreThoseOfAQueue) {
  // Arrivals at 0, 1, 2; services of 8, 4 and 4.4 s (one block found, one computed): starts at 0, 8, 12.
  const Trace trace =
      make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 1, .ids = {5}}, {.arrival_s = 2, .ids = {1, 6}}});
  const WaitingTimes each = times(trace, {.blocks = 10});
  EXPECT_DOUBLE_EQ(each.waiting.p50, 7);
  EXPECT_DOUBLE_EQ(each.waiting.p99, 10);
  EXPECT_DOUBLE_EQ(each.ttft.p50, 11);  // 8 − 0, 12 − 1, 16.4 − 2
  EXPECT_DOUBLE_EQ(each.ttft.p90, 14.4);
  EXPECT_DOUBLE_EQ(each.busy, 1);
}

TEST(Online, ServersWorkSideBySide) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}}, {.arrival_s = 0, .ids = {3, 4}}});
  ServiceModel two = kOneServer;
  two.servers = 2;
  const WaitingTimes each = times(trace, {.blocks = 10, .service = two});
  EXPECT_DOUBLE_EQ(each.waiting.p99, 0);
  EXPECT_DOUBLE_EQ(each.ttft.p99, 8);
}

TEST(Online, DecodingKeepsAServerBusyWhereItIsTold) {
  const Trace trace =
      make_trace({{.arrival_s = 0, .ids = {1}, .output_tokens = 6}, {.arrival_s = 0, .ids = {2}, .output_tokens = 6}});
  EXPECT_DOUBLE_EQ(times(trace, {.blocks = 10}).waiting.p99, 4);
  ServiceModel decoding = kOneServer;
  decoding.decode_tokens_per_s = 2;
  EXPECT_DOUBLE_EQ(times(trace, {.blocks = 10, .service = decoding}).waiting.p99, 7);
}

TEST(Online, AnIdleServerWaitsForTheNextArrival) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1}}, {.arrival_s = 96, .ids = {2}}});
  const WaitingTimes each = times(trace, {.blocks = 10});
  EXPECT_DOUBLE_EQ(each.waiting.p99, 0);
  EXPECT_DOUBLE_EQ(each.busy, 0.08);
}

// While the first is served the others arrive; the short one overtakes.
TEST(Online, SchedulersChooseAmongAllThatArrived) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2}},
                                  {.arrival_s = 1, .ids = {3, 4, 5}},
                                  {.arrival_s = 2, .ids = {6}},
                                  {.arrival_s = 3, .ids = {1, 2, 7}}});
  // Starts: fifo 0 8 20 24; shortest 0 12 8 24; reuse (β 0.1) 0 12.8+4 12.8 8.
  EXPECT_DOUBLE_EQ(times(trace, {.blocks = 20}).waiting.p99, 21);
  EXPECT_DOUBLE_EQ(times(trace, {.scheduler = "shortest", .blocks = 20}).waiting.p50, 6);
  const auto reuse = times(trace, {.scheduler = "reuse", .blocks = 20, .beta = 0.1});
  EXPECT_DOUBLE_EQ(reuse.waiting.p50, 5);  // 0, 5, 11.8 (the third), …
}

// Every waiting request's reuse, followed as the cache changes, equals a look-up at the moment of choice.
TEST(Online, ReuseChoosesByTheDefinition) {
  const Trace trace = random_trace(21, 600);
  constexpr std::uint64_t kBlocks = 15;
  const auto result = simulate(trace, {.scheduler = "reuse", .blocks = kBlocks, .beta = 0.25, .service = kOneServer});
  ASSERT_TRUE(result);

  NaiveCache cache(trace, kBlocks, [](const NaiveBlock& block) { return static_cast<double>(block.last_access); });
  std::vector<std::uint32_t> waiting;
  std::uint64_t reused = 0;
  double now_s = 0;
  for (std::uint32_t next = 0; next < trace.requests.size() || !waiting.empty();) {
    if (waiting.empty()) now_s = std::max(now_s, trace.requests[next].arrival_s);
    while (next < trace.requests.size() && trace.requests[next].arrival_s <= now_s) waiting.push_back(next++);
    const auto score = [&](std::uint32_t id) {
      const TraceRequest& request = trace.requests[id];
      return static_cast<double>(cache.resident_prefix(trace.prompt(request))) - 0.25 * request.arrival_s;
    };
    const auto best = std::ranges::max_element(waiting, {}, score);
    const std::size_t found = cache.serve(trace.prompt(trace.requests[*best]));
    reused += found;
    const std::uint32_t tokens = trace.requests[*best].input_tokens, cached = static_cast<std::uint32_t>(found) * 4;
    now_s += kOneServer.prefill_s(tokens - cached, cached);
    waiting.erase(best);
  }
  EXPECT_EQ(result->blocks_reused, reused);
}

TEST(Percentiles, AreNearestRanks) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Percentiles each = percentiles_of(values);
  EXPECT_EQ(each.p50, 50);
  EXPECT_EQ(each.p90, 90);
  EXPECT_EQ(each.p99, 99);
  EXPECT_EQ(percentiles_of({}).p99, 0);
  EXPECT_EQ(percentiles_of({3}).p50, 3);
}

}  // namespace
}  // namespace shale::testing
