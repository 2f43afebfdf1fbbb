// What policies keep of evicted blocks and of visits: the table of ghosts against a naive list, the sketch against true
// counts, lots.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "eviction/frequency_sketch.h"
#include "eviction/ghost_table.h"
#include "eviction/tree.h"

namespace shale {
namespace {

TEST(GhostTable, AgreesWithANaiveList) {
  for (const std::size_t capacity : {0, 1, 7, 300}) {
    std::mt19937 random(1);
    GhostTable<int> table(capacity);
    std::deque<std::pair<NodeKey, int>> list;  // oldest first
    for (int step = 0; step < 20000; ++step) {
      const NodeKey key = random() % (2 * capacity + 3);
      const auto known = std::ranges::find(list, key, &std::pair<NodeKey, int>::first);
      ASSERT_EQ(table.contains(key), known != list.end());
      switch (random() % 8) {
        case 0:
          table.forget_oldest();
          if (!list.empty()) list.pop_front();
          break;
        case 1:
        case 2: {
          const auto taken = table.take(key);
          ASSERT_EQ(taken.has_value(), known != list.end());
          if (!taken) break;
          ASSERT_EQ(*taken, known->second);
          list.erase(known);
          break;
        }
        default:
          table.insert(key, step);
          if (known != list.end()) list.erase(known);
          list.emplace_back(key, step);
          if (list.size() > capacity) list.pop_front();
      }
      ASSERT_EQ(table.size(), list.size());
    }
  }
}

TEST(FrequencySketch, CountsRoughlyAndForgetsWithTime) {
  std::mt19937 random(2);
  FrequencySketch sketch(1000);
  std::map<NodeKey, unsigned> counts;
  for (int i = 0; i < 5000; ++i) {
    const NodeKey key = random() % 2 ? random() % 20 : random() % 2000;
    sketch.add(key);
    ++counts[key];
  }
  int wrong = 0;
  for (const auto& [key, count] : counts) {
    ASSERT_GE(sketch.estimate(key), std::min(count, 15u));
    wrong += sketch.estimate(key) != std::min(count, 15u);
  }
  EXPECT_LT(wrong, static_cast<int>(counts.size() / 20));
  const unsigned before = sketch.estimate(7);
  for (NodeKey key = 10000; key < 15002; ++key) sketch.add(key);  // the ten thousandth addition halves
  EXPECT_EQ(sketch.estimate(7), before / 2);
}

TEST(Random, EveryLeafIsAsLikelyAndTheSeedDecides) {
  std::vector<int> gone(10);
  std::vector<NodeId> runs[2];
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const auto policy = std::move(make_eviction_policy("random", {.capacity_blocks = 10, .seed = seed}).value());
    Tree tree(*policy);
    for (int label = 0; label < 10; ++label) tree.serve({label});
    tree.serve({0});  // the last newcomer takes its place
    ++gone[policy->victim()];
    runs[seed < 50 ? 0 : 1].push_back(policy->victim());
  }
  for (const int count : gone) EXPECT_NEAR(count, 500, 100);
  runs[1].resize(50);
  EXPECT_NE(runs[0], runs[1]);
}

TEST(Ghosts, AreTheEvictedBlocksThatAPolicyKnows) {
  for (const auto& [name, ghosts] : {std::pair("lru", 0u), std::pair("lru_k", 40u), std::pair("hazard", 50u)}) {
    const auto policy = std::move(make_eviction_policy(name, {.capacity_blocks = 10}).value());
    Tree tree(*policy);
    for (int label = 0; label < 60; ++label) {
      tree.serve({label});
      while (tree.size() > 10) tree.evict(policy->victim());
    }
    EXPECT_EQ(policy->ghosts(), ghosts) << name;
  }
}

}  // namespace
}  // namespace shale
