#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduling/schedulers.h"

namespace shale {
namespace {

// A set of resident blocks; block b is the child of (b − 1) / 2, block 0 the root of all.
class Residents final : public PrefixLookup {
 public:
  std::uint32_t resident_prefix(const WaitingRequest& request) const override {
    return resident_prefix(request.blocks);
  }
  std::uint32_t touch_prefix(const WaitingRequest& request) override {
    const std::uint32_t resident = resident_prefix(request);
    for (const BlockId block : request.blocks.first(resident)) touched_.insert(block);
    return resident;
  }
  std::uint32_t resident_prefix(std::span<const BlockId> blocks) const {
    std::uint32_t resident = 0;
    while (resident < blocks.size() && resident_.contains(blocks[resident])) ++resident;
    return resident;
  }
  void insert(std::span<const BlockId> blocks) {
    for (const BlockId block : blocks) {
      if (resident_.insert(block).second && observer != nullptr) observer->inserted(block);
    }
  }
  void evict_a_leaf(std::mt19937& random) {
    std::vector<BlockId> leaves;
    for (const BlockId block : resident_) {
      if (!resident_.contains(2 * block + 1) && !resident_.contains(2 * block + 2)) leaves.push_back(block);
    }
    if (leaves.empty()) return;
    const BlockId leaf = leaves[random() % leaves.size()];
    resident_.erase(leaf);
    if (observer != nullptr) observer->evicted(leaf);
  }
  const std::set<BlockId>& touched() const { return touched_; }
  CacheObserver* observer = nullptr;

 private:
  std::set<BlockId> resident_, touched_;
};

std::vector<BlockId> path_to(BlockId block) {
  std::vector<BlockId> path = {block};
  for (; path.back() != 0; path.push_back((path.back() - 1) / 2)) {
  }
  std::ranges::reverse(path);
  return path;
}

WaitingRequest request_of(std::uint32_t id, double arrival_s, const std::vector<BlockId>& path) {
  return {.id = id, .arrival_s = arrival_s, .prompt_blocks = path.size(), .blocks = path};
}

std::unique_ptr<Scheduler> make(std::string_view name, PrefixLookup& cache, const SchedulerOptions& options = {}) {
  return std::move(make_scheduler(name, options, cache).value());
}

class SchedulerTest : public testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Registry, SchedulerTest, testing::ValuesIn(scheduler_names()),
                         [](const auto& each) { return std::string(each.param); });

TEST(Schedulers, AreNamedInOrderAndRefuseOthers) {
  EXPECT_TRUE(std::ranges::is_sorted(scheduler_names()));
  Residents cache;
  const auto unknown = make_scheduler("none such", {}, cache);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  for (const auto name : scheduler_names()) EXPECT_THAT(unknown.error().message, testing::HasSubstr(std::string(name)));
  EXPECT_TRUE(scheduler_reads_cache("reuse"));
  EXPECT_FALSE(scheduler_reads_cache("fifo"));
}

TEST_P(SchedulerTest, EveryRequestIsTakenOnce) {
  for (const bool rescore : {false, true}) {
    std::mt19937 random(1);
    Residents cache;
    const auto scheduler = make(GetParam(), cache, {.rescore = rescore});
    cache.observer = scheduler->observer();
    std::vector<std::vector<BlockId>> paths;
    std::set<std::uint32_t> waiting;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        waiting.insert(static_cast<std::uint32_t>(paths.size()));
        paths.push_back(path_to(static_cast<BlockId>(random() % 60)));
        scheduler->add(request_of(static_cast<std::uint32_t>(paths.size() - 1), step, paths.back()));
      } else if (!waiting.empty()) {
        const std::uint32_t id = scheduler->take();
        ASSERT_EQ(waiting.erase(id), 1u);
        cache.insert(paths[id]);
      }
      if (random() % 3 == 0) cache.evict_a_leaf(random);
      ASSERT_EQ(scheduler->waiting(), waiting.size());
    }
  }
}

TEST_P(SchedulerTest, WhoWithdrewIsNotTaken) {
  Residents cache;
  const auto scheduler = make(GetParam(), cache, {.rescore = false});
  std::vector<std::vector<BlockId>> paths;
  for (std::uint32_t id = 0; id < 30; ++id) paths.push_back(path_to(id % 7));
  for (std::uint32_t id = 0; id < 30; ++id) scheduler->add(request_of(id, id, paths[id]));
  for (std::uint32_t id = 0; id < 30; id += 2) scheduler->withdraw(id);
  EXPECT_EQ(scheduler->waiting(), 15u);
  std::set<std::uint32_t> taken;
  while (scheduler->waiting() > 0) taken.insert(scheduler->take());
  EXPECT_EQ(taken.size(), 15u);
  for (const std::uint32_t id : taken) EXPECT_EQ(id % 2, 1u);
}

TEST_P(SchedulerTest, EqualsGoInOrderOfArrival) {
  Residents cache;
  const auto scheduler = make(GetParam(), cache);
  const auto path = path_to(9);
  for (std::uint32_t id = 0; id < 20; ++id) scheduler->add(request_of(id, 5, path));
  for (std::uint32_t id = 0; id < 20; ++id) EXPECT_EQ(scheduler->take(), id);
}

std::vector<std::uint32_t> order_of(std::string_view name) {
  Residents cache;
  const auto scheduler = make(name, cache);
  const std::vector<std::vector<BlockId>> paths = {path_to(3), path_to(40), path_to(0), path_to(4), path_to(41)};
  for (std::uint32_t id = 0; id < paths.size(); ++id) scheduler->add(request_of(id, id, paths[id]));
  std::vector<std::uint32_t> order;
  while (scheduler->waiting() > 0) order.push_back(scheduler->take());
  return order;
}

TEST(Schedulers, GoByArrivalOrLength) {
  EXPECT_THAT(order_of("fifo"), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(order_of("shortest"), testing::ElementsAre(2, 0, 3, 1, 4));
  EXPECT_THAT(order_of("longest"), testing::ElementsAre(1, 4, 0, 3, 2));
}

// Both ways to follow the cache choose as the definition does, request for request.
TEST(Reuse, TakesTheLargestScoreByDefinition) {
  for (const auto& [alpha, beta] :
       {std::pair(1.0, 1.0), std::pair(1.0, 0.0), std::pair(0.0, 1.0), std::pair(2.5, 0.25)}) {
    for (const bool rescore : {false, true}) {
      std::mt19937 random(3);
      Residents cache;
      const auto scheduler = make("reuse", cache, {alpha, beta, rescore});
      cache.observer = scheduler->observer();
      std::vector<std::vector<BlockId>> paths;
      std::map<std::uint32_t, double> waiting;  // id → arrival
      for (int step = 0; step < 3000; ++step) {
        if (waiting.size() > 2 && random() % 8 == 0) {
          const auto gone = std::next(waiting.begin(), static_cast<int>(random() % waiting.size()));
          scheduler->withdraw(gone->first);
          waiting.erase(gone);
        } else if (random() % 2 == 0 || waiting.empty()) {
          const auto id = static_cast<std::uint32_t>(paths.size());
          paths.push_back(path_to(static_cast<BlockId>(random() % 200)));
          waiting[id] = step / 4;
          scheduler->add(request_of(id, waiting[id], paths[id]));
        } else {
          const double now_s = step;
          std::uint32_t best = waiting.begin()->first;
          const auto score = [&](std::uint32_t id) {
            return alpha * cache.resident_prefix(paths[id]) + beta * (now_s - waiting[id]);
          };
          for (const auto& [id, arrival_s] : waiting) {
            if (score(id) > score(best)) best = id;
          }
          ASSERT_EQ(scheduler->take(), best) << "alpha " << alpha << " beta " << beta << " rescore " << rescore;
          cache.insert(paths[best]);
          waiting.erase(best);
        }
        for (int i = 0; i < 3; ++i) cache.evict_a_leaf(random);
      }
    }
  }
}

TEST(Reuse, OnlyRescoringTouches) {
  for (const bool rescore : {false, true}) {
    Residents cache;
    cache.insert(path_to(9));
    const auto scheduler = make("reuse", cache, {.rescore = rescore});
    const auto path = path_to(9);
    scheduler->add(request_of(0, 0, path));
    EXPECT_EQ(scheduler->take(), 0u);
    EXPECT_EQ(cache.touched().size(), rescore ? path.size() : 0u);
  }
}

}  // namespace
}  // namespace shale
