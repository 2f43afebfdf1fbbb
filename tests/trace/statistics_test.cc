// Statistics against what a few loops over the same trace say.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "trace/trace_files.h"
#include "trace/trace_statistics.h"

namespace shale::testing {
namespace {

using ::testing::ElementsAre;

class StatisticsTest : public TraceFiles {
 protected:
  // Prompts that walk down a random tree, so that they share prefixes of every length.
  Trace random_trace(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::string text = "shale-trace 1 16\n";
    const auto fan = 1 + random() % 4, requests = 1 + random() % 300;
    for (std::uint64_t i = 0; i < requests; ++i) {
      const std::uint64_t blocks = random() % 20;
      text += fmt::format("{} {} {}", i / 3, blocks * 16, random() % 100);
      for (std::uint64_t k = 0; k < blocks; ++k) text += fmt::format(" {}", random() % 5 == 0 ? random() % fan : 0);
      text += '\n';
    }
    return trace_of(text);
  }

  // By keeping for each block all blocks since.
  static std::map<std::uint64_t, std::uint64_t> naive_distances(const Trace& trace) {
    std::map<std::uint64_t, std::uint64_t> counts;
    std::vector<BlockId> stack;  // the most recent last
    for (const TraceRequest& request : trace.requests) {
      for (const BlockId block : trace.prompt(request)) {
        const auto at = std::find(stack.begin(), stack.end(), block);
        if (at != stack.end()) {
          ++counts[static_cast<std::uint64_t>(stack.end() - at) - 1];
          stack.erase(at);
        }
        stack.push_back(block);
      }
    }
    return counts;
  }
};

TEST_F(StatisticsTest, ReuseDistancesAreExact) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Trace trace = random_trace(seed);
    std::map<std::uint64_t, std::uint64_t> found;
    std::uint64_t previous = 0;
    for (const ReuseDistance& d : reuse_distances(trace)) {
      EXPECT_TRUE(found.empty() || d.distance > previous);
      previous = d.distance;
      found[d.distance] = d.accesses;
    }
    EXPECT_EQ(found, naive_distances(trace)) << "seed " << seed;
  }
}

TEST_F(StatisticsTest, CountsAgreeWithLoops) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Trace trace = random_trace(seed);
    const double window_s = 1 + seed % 5;
    const TraceStatistics s = trace_statistics(trace, window_s);
    std::set<BlockId> ever;
    std::uint64_t blocks = 0, reused = 0, reusing = 0, input = 0;
    std::map<std::size_t, std::set<BlockId>> in_window;
    std::map<std::size_t, std::uint64_t> fresh;
    for (const TraceRequest& request : trace.requests) {
      const auto window = static_cast<std::size_t>(request.arrival_s / window_s);
      std::uint64_t found = 0;
      for (const BlockId block : trace.prompt(request)) {
        found += ever.contains(block);
        fresh[window] += ever.insert(block).second;
        in_window[window].insert(block);
        ++blocks;
      }
      reused += found;
      reusing += found > 0;
      input += request.input_tokens;
    }
    EXPECT_EQ(s.blocks, blocks);
    EXPECT_EQ(s.unique_blocks, ever.size());
    EXPECT_EQ(s.reused_blocks, reused);
    EXPECT_EQ(s.reusing_requests, reusing);
    EXPECT_EQ(s.input_tokens, input);
    EXPECT_DOUBLE_EQ(s.hit_ratio_unbounded, blocks ? static_cast<double>(reused) / static_cast<double>(blocks) : 0);
    for (std::size_t i = 0; i < s.windows.size(); ++i) {
      EXPECT_EQ(s.windows[i].unique_blocks, in_window[i].size()) << i;
      EXPECT_EQ(s.windows[i].new_blocks, fresh[i]) << i;
      EXPECT_DOUBLE_EQ(s.windows[i].start_s, static_cast<double>(i) * window_s);
    }
  }
}

TEST_F(StatisticsTest, OfASmallTrace) {
  const Trace trace = trace_of(
      "shale-trace 1 10\n"
      "0   30 5 1-3\n"
      "0   20 5 1-2\n"
      "1.5 10 1 9\n"
      "6   45 9 1-4\n");
  const TraceStatistics s = trace_statistics(trace, 2);
  EXPECT_EQ(s.requests, 4u);
  EXPECT_EQ(s.blocks, 10u);
  EXPECT_EQ(s.unique_blocks, 5u);
  EXPECT_EQ(s.reused_blocks, 5u);
  EXPECT_EQ(s.reusing_requests, 2u);
  EXPECT_DOUBLE_EQ(s.hit_ratio_unbounded, 0.5);
  EXPECT_DOUBLE_EQ(s.duration_s, 6);
  EXPECT_EQ(s.busiest_second, 2u);
  EXPECT_DOUBLE_EQ(s.prompt_tokens.mean, 26.25);
  EXPECT_EQ(s.prompt_tokens.p50, 20);
  EXPECT_EQ(s.prompt_tokens.p90, 45);
  EXPECT_EQ(s.answer_tokens.max, 9);
  EXPECT_DOUBLE_EQ(s.gap_s.mean, 2);
  EXPECT_DOUBLE_EQ(s.gap_s.p50, 1.5);
  EXPECT_NEAR(s.gap_variation, std::sqrt((4 + 0.25 + 6.25) / 3) / 2, 1e-12);
  // The second request's have the third block and each other between; the fourth's 1 and 2 have 9 and each other, and
  // its 3 has 9, 1 and 2.
  ASSERT_EQ(s.reuse_distances.size(), 2u);
  EXPECT_EQ(s.reuse_distances[0].distance, 2u);
  EXPECT_EQ(s.reuse_distances[0].accesses, 4u);
  EXPECT_EQ(s.reuse_distances[1].distance, 3u);
  EXPECT_EQ(s.reuse_distances[1].accesses, 1u);
  EXPECT_EQ(distance_quantile(s.reuse_distances, 0.8), 2u);
  EXPECT_EQ(distance_quantile(s.reuse_distances, 0.9), 3u);
  std::vector<std::uint64_t> unique;
  for (const TraceWindow& window : s.windows) unique.push_back(window.unique_blocks);
  EXPECT_THAT(unique, ElementsAre(4, 0, 0, 4));
}

TEST_F(StatisticsTest, OfNothingMuch) {
  const TraceStatistics none = trace_statistics(Trace());
  EXPECT_EQ(none.requests, 0u);
  EXPECT_TRUE(none.windows.empty());
  const TraceStatistics one = trace_statistics(trace_of("shale-trace 1 16\n7 0 0\n"));
  EXPECT_EQ(one.requests, 1u);
  EXPECT_EQ(one.windows.size(), 1u);
  EXPECT_EQ(one.hit_ratio_unbounded, 0);
  EXPECT_EQ(one.gap_variation, 0);
  EXPECT_EQ(distance_quantile(one.reuse_distances, 0.5), 0u);
  // A tiny window over a long trace is lengthened, not obeyed.
  EXPECT_LE(trace_statistics(trace_of("shale-trace 1 16\n0 0 0\n1e9 0 0\n"), 1e-6).windows.size(), 100'001u);
}

}  // namespace
}  // namespace shale::testing
