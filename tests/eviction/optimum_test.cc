#include "eviction/optimum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>

namespace shale {
namespace {

// Requests for paths of a small tree of blocks; a set of blocks is a mask.
struct Load {
  std::vector<std::uint32_t> parents;  // of a block: one of a lower number, or kNeverUsed
  std::vector<std::vector<std::uint32_t>> paths;
  std::size_t capacity = 0;

  static Load random(std::mt19937& random) {
    Load load;
    load.capacity = 1 + random() % 4;
    for (std::uint32_t block = 0; block < 9; ++block) {
      load.parents.push_back(block == 0 || random() % 3 == 0 ? kNeverUsed
                                                             : static_cast<std::uint32_t>(random() % block));
    }
    for (int request = 0; request < 9; ++request) {
      std::vector<std::uint32_t> path;
      for (auto block = static_cast<std::uint32_t>(random() % 9); block != kNeverUsed; block = load.parents[block])
        path.insert(path.begin(), block);
      load.paths.push_back(path);
    }
    return load;
  }

  bool is_leaf(std::uint32_t resident, std::uint32_t block) const {
    if ((resident >> block & 1) == 0) return false;
    for (std::uint32_t child = 0; child < parents.size(); ++child) {
      if ((resident >> child & 1) != 0 && parents[child] == block) return false;
    }
    return true;
  }

  // The most blocks that any order of evictions finds again, from this request on.
  std::size_t best(std::size_t request, std::uint32_t resident) {
    if (request == paths.size()) return 0;
    const auto [known, fresh] = best_from.try_emplace({request, resident}, 0);
    if (!fresh) return known->second;
    std::size_t found = 0;
    for (const std::uint32_t block : paths[request]) found += resident >> block & 1;
    std::set<std::uint32_t> states{resident};
    for (const std::uint32_t block : paths[request]) states = {*states.begin() | 1u << block};
    while (static_cast<std::size_t>(std::popcount(*states.begin())) > capacity) {
      std::set<std::uint32_t> smaller;
      for (const std::uint32_t state : states) {
        for (std::uint32_t block = 0; block < parents.size(); ++block) {
          if (is_leaf(state, block)) smaller.insert(state & ~(1u << block));
        }
      }
      states = smaller;
    }
    std::size_t rest = 0;
    for (const std::uint32_t state : states) rest = std::max(rest, best(request + 1, state));
    return best_from[{request, resident}] = found + rest;
  }

  std::size_t by_policy() const {
    std::vector<std::uint32_t> blocks;
    for (const auto& path : paths) blocks.insert(blocks.end(), path.begin(), path.end());
    const auto next = next_uses(blocks, static_cast<std::uint32_t>(parents.size()));
    const auto policy = make_optimum(next);
    std::uint32_t resident = 0;
    std::size_t found = 0;
    std::uint64_t tick = 0;
    for (const auto& path : paths) {
      std::size_t hits = 0;
      while (hits < path.size() && (resident >> path[hits] & 1) != 0) ++hits;
      found += hits;
      for (const std::uint32_t block : path) resident |= 1u << block;
      const std::vector<NodeKey> keys(path.begin(), path.end());
      policy->access({.path = path, .keys = keys, .inserted_from = hits, .tick = ++tick});
      while (static_cast<std::size_t>(std::popcount(resident)) > capacity) {
        const NodeId leaf = policy->victim();
        EXPECT_TRUE(is_leaf(resident, leaf));
        resident &= ~(1u << leaf);
        const std::uint32_t parent = parents[leaf];
        policy->evicted(leaf, parent, parent != kNeverUsed && is_leaf(resident, parent));
      }
    }
    return found;
  }

  std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> best_from = {};
};

TEST(Optimum, NextUses) {
  const std::vector<std::uint32_t> blocks = {0, 1, 0, 2, 0, 1};
  EXPECT_EQ(next_uses(blocks, 3), (std::vector<std::uint32_t>{2, 5, 4, kNeverUsed, kNeverUsed, kNeverUsed}));
}

TEST(Optimum, FindsAsMuchAsExhaustiveSearch) {
  static_assert(kNeverUsed == kNoNode);
  std::mt19937 random(3);
  std::size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    Load load = Load::random(random);
    const std::size_t best = load.best(0, 0);
    ASSERT_EQ(load.by_policy(), best) << "round " << round;
    found += best;
  }
  EXPECT_GT(found, 10000);
}

}  // namespace
}  // namespace shale
