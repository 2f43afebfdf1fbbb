#include "profile/replay.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

constexpr std::uint32_t kMemory = 0, kRemote = 1;

// Two tiers, memory with room for one uncompressed document or two pressed ones. `pressed` is method 1.
ReplayDocument document(double pressed_quality) {
  const auto choice = [](std::uint32_t method, std::uint32_t tier, std::uint64_t bytes, double quality, double ttft_s) {
    return ReplayChoice{{method, 1.0, tier, bytes, quality, ttft_s}, ttft_s + 0.01, {quality, quality}};
  };
  return {{choice(0, kMemory, 100, 1, 0.01), choice(1, kMemory, 50, pressed_quality, 0.01),
           choice(0, kRemote, 100, 1, 0.5), choice(1, kRemote, 50, pressed_quality, 0.3),
           choice(0, kDropped, 0, 1, 2.0)}};
}

ReplayWorkload workload() {
  ReplayWorkload work;
  work.tiers = {{100}, {~std::uint64_t{0}}};
  work.documents = {document(0.95), document(0.95)};
  for (std::size_t i = 0; i < 10; ++i) work.requests.push_back({i % 2, i % 2, static_cast<double>(i)});
  return work;
}

double mean_ttft(const ReplayResult& result) {
  double sum = 0;
  for (const ReplayServed& served : result.served) sum += served.ttft_s / static_cast<double>(result.served.size());
  return sum;
}

TEST(Replay, PrefillComputesEverything) {
  const ReplayResult result = replay(workload(), *make_planner("prefill").value());
  ASSERT_EQ(result.served.size(), 10u);
  for (const ReplayServed& served : result.served) {
    EXPECT_DOUBLE_EQ(served.ttft_s, 2.01);
    EXPECT_EQ(served.quality, 1);
  }
  EXPECT_EQ(result.bytes_held, (std::vector<std::uint64_t>{0, 0}));
}

// Alternating requests and room for one: the document asked for is always the one that was pushed down.
TEST(Replay, LruThrashesWhereOnlyOneFits) {
  const ReplayResult result = replay(workload(), *make_planner("lru").value());
  std::size_t from_remote = 0;
  for (const ReplayServed& served : result.served) from_remote += served.ttft_s > 0.5;
  EXPECT_GE(from_remote, 9u);
  EXPECT_EQ(result.bytes_held, (std::vector<std::uint64_t>{100, 100}));
}

TEST(Replay, ShalePressesBothIntoMemory) {
  const ReplayWorkload work = workload();
  const ReplayResult result = replay(work, *make_planner("shale").value());
  EXPECT_EQ(result.bytes_held, (std::vector<std::uint64_t>{100, 0}));
  for (const ReplayServed& served : result.served) EXPECT_EQ(served.quality, 0.95);
  EXPECT_LT(mean_ttft(result), 0.05);
}

TEST(Replay, TakesFixedConfigurationsToo) {
  PlannerOptions options;
  options.fixed_method_index = 1;
  const ReplayResult result = replay(workload(), *make_planner("fixed", options).value());
  for (const ReplayServed& served : result.served) EXPECT_EQ(served.choice, 1u);
}

TEST(Replay, IsDeterministic) {
  const auto planner = make_planner("shale").value();
  const ReplayResult one = replay(workload(), *planner), other = replay(workload(), *planner);
  for (std::size_t i = 0; i < one.served.size(); ++i) EXPECT_EQ(one.served[i].choice, other.served[i].choice);
}

}  // namespace
}  // namespace shale
