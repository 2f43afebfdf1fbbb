// The simulator against a cache that scans, on random traces and on small ones that are checked in.
#include "sim/simulate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/made_trace.h"
#include "support/test_data.h"
#include "trace/trace_reader.h"

namespace shale::testing {
namespace {

struct RankedPolicy {
  std::string name;
  NaiveCache::Rank rank;
};

std::vector<RankedPolicy> ranked_policies() {
  return {{"lru", [](const NaiveBlock& block) { return static_cast<double>(block.last_access); }},
          {"lfu", [](const NaiveBlock& block) { return static_cast<double>(block.visits); }},
          {"hybrid_tabulated", [](const NaiveBlock& block) {
             return static_cast<double>(block.last_access) + 2.5 * static_cast<double>(block.visits);
           }}};
}

void expect_as_naive(const Trace& trace, double window_s, const std::vector<std::uint64_t>& sizes) {
  for (const RankedPolicy& policy : ranked_policies()) {
    for (const auto scheduler : scheduler_names()) {
      for (const std::uint64_t blocks : sizes) {
        const auto result = simulate(trace, {.policy = policy.name,
                                             .scheduler = std::string(scheduler),
                                             .blocks = blocks,
                                             .window_s = window_s,
                                             .alpha = 1,
                                             .beta = 0.5});
        ASSERT_TRUE(result) << result.error().message;
        const NaiveOutcome naive = naive_simulate(trace, blocks, policy.rank, std::string(scheduler), window_s, 1, 0.5);
        EXPECT_EQ(result->blocks_reused, naive.reused)
            << trace.name << " " << policy.name << " " << scheduler << " " << blocks << " " << window_s;
        EXPECT_EQ(result->evictions, naive.evicted.size());
        EXPECT_EQ(result->requests, trace.requests.size());
        EXPECT_EQ(result->blocks_requested, trace.blocks.size());
      }
    }
  }
}

TEST(Simulate, AgreesWithACacheThatScans) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = random_trace(seed, 250);
    for (const double window_s : {0.0, 3.0}) expect_as_naive(trace, window_s, {1, 5, 23, 80, 1'000'000});
  }
}

TEST(Simulate, AgreesOnCheckedInTraces) {
  for (const char* name : {"branches.jsonl", "chats.jsonl"}) {
    const auto trace = load_trace(test_data() / "traces" / name);
    ASSERT_TRUE(trace) << trace.error().message;
    expect_as_naive(*trace, 0, {1, 4, 10, 30, 100});
  }
}

// A request of three blocks in a cache of two keeps the two at the root: the newest leaf goes first.
TEST(Simulate, AnOverlongPromptKeepsItsBeginning) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2, 3}}, {.arrival_s = 1, .ids = {1, 2, 3}}});
  const auto result = simulate(trace, {.blocks = 2});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->blocks_reused, 2u);
  EXPECT_EQ(result->evictions, 2u);
  EXPECT_EQ(result->hit_ratio(), 2.0 / 6);
}

TEST(Simulate, RefusesWhatMakesNoSense) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1}}});
  for (const SimulationOptions& options : {SimulationOptions{.policy = "psychic"},
                                           {.scheduler = "bribes"},
                                           {.blocks = 0},
                                           {.blocks = ~std::uint64_t{0}},
                                           {.alpha = std::numeric_limits<double>::quiet_NaN()},
                                           {.beta = std::numeric_limits<double>::infinity()},
                                           {.service = ServiceModel{.prefill_tokens_per_s = 0}},
                                           {.service = ServiceModel{.servers = kServersMax + 1}}}) {
    const auto result = simulate(trace, options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Simulate, HybridCountsLengthsUnlessToldNotTo) {
  const Trace trace = random_trace(3, 1000);
  const auto reused = [&](bool counts) {
    return simulate(trace, {.policy = "hybrid", .blocks = 30, .hybrid_counts_length = counts})->blocks_reused;
  };
  EXPECT_NE(reused(true), reused(false));
  EXPECT_EQ(reused(true), simulate(trace, {.policy = "hybrid", .blocks = 30})->blocks_reused);
}

TEST(Simulate, AnEmptyTraceHitsNothing) {
  const auto result = simulate(make_trace({}), {});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->requests, 0u);
  EXPECT_EQ(result->hit_ratio(), 0);
}

// The second turn's prompt holds the first answer: it is found only when answers are inserted.
TEST(Simulate, AnswersThatTheTraceTellsAreFoundAgain) {
  const Trace trace = make_trace({{.arrival_s = 0, .ids = {1, 2, 3}, .output_tokens = 4, .output_blocks = 1},
                                  {.arrival_s = 1, .ids = {1, 2, 3, 4}, .output_tokens = 0, .output_blocks = 0}});
  EXPECT_EQ(simulate(trace, {.blocks = 10, .decode = false})->blocks_reused, 2u);
  const auto decoded = simulate(trace, {.blocks = 10, .decode = true});
  EXPECT_EQ(decoded->blocks_reused, 3u);
  EXPECT_EQ(decoded->blocks_requested, 6u);  // prompts only
}

TEST(Simulate, OtherAnswersTakeRoom) {
  // Two prompts of two blocks fit in five blocks, but not beside two answers of one block each.
  const std::vector<MadeRequest> requests = {{.arrival_s = 0, .ids = {1, 2}, .output_tokens = 3},
                                             {.arrival_s = 1, .ids = {3, 4}, .output_tokens = 3},
                                             {.arrival_s = 2, .ids = {1, 2}, .output_tokens = 3}};
  const Trace trace = make_trace(requests);
  EXPECT_EQ(simulate(trace, {.blocks = 4, .decode = false})->evictions, 0u);
  const auto decoded = simulate(trace, {.blocks = 4, .decode = true});
  EXPECT_GT(decoded->evictions, 0u);
  EXPECT_LT(decoded->blocks_reused, 2u);
}

// A line of a trace says how long an answer is, and nothing stands behind it.
TEST(Simulate, AnswersOfMoreBlocksThanATraceMayHaveAreRefused) {
  const auto code = [](const Trace& trace, const char* policy) {
    const auto result = simulate(trace, {.policy = policy, .blocks = 4, .decode = true});
    return result ? ErrorCode::kInternal : result.error().code;
  };
  const MadeRequest long_answer{.ids = {1}, .output_tokens = ~0u};
  const Trace one = make_trace({long_answer}, 4);
  const Trace many = make_trace(std::vector<MadeRequest>(256, long_answer), 512);  // 8 Mi blocks each
  for (const char* policy : {"lru", "optimum"}) {
    EXPECT_EQ(code(one, policy), ErrorCode::kFull);
    EXPECT_EQ(code(many, policy), ErrorCode::kFull);
  }
  EXPECT_TRUE(simulate(many, {.blocks = 4, .decode = false}));
}

TEST(Simulate, TheTimelineEndsWithTheTotals) {
  const Trace trace = random_trace(9, 200);
  const auto result = simulate(trace, {.blocks = 20, .timeline_points = 10});
  ASSERT_TRUE(result);
  ASSERT_EQ(result->timeline.size(), 10u);
  EXPECT_EQ(result->timeline.back().requests, 200u);
  EXPECT_EQ(result->timeline.back().blocks_requested, result->blocks_requested);
  EXPECT_EQ(result->timeline.back().blocks_reused, result->blocks_reused);
  for (const TimelinePoint& point : result->timeline) EXPECT_LE(point.resident_blocks, 20u);
}

TEST(Simulate, TheTimelineHasAsManyPointsAsWereAskedFor) {
  const Trace trace = random_trace(9, 119);
  for (const std::uint32_t points : {1u, 7u, 60u, 118u, 119u, 1'000u}) {
    const auto result = simulate(trace, {.blocks = 20, .timeline_points = points});
    ASSERT_TRUE(result);
    EXPECT_EQ(result->timeline.size(), std::min(points, 119u));
    EXPECT_EQ(result->timeline.back().requests, 119u);
  }
}

TEST(Simulate, AStoppedRunTellsWhatItHas) {
  const Trace trace = random_trace(10, 5000);
  std::stop_source stop;
  stop.request_stop();
  const auto result = simulate(trace, {.blocks = 20}, stop.get_token());
  ASSERT_TRUE(result);
  EXPECT_GT(result->requests, 0u);
  EXPECT_LT(result->requests, trace.requests.size());
}

}  // namespace
}  // namespace shale::testing
