// Every policy evicts what its naive twin evicts, on random requests whose blocks return.
#include "eviction/twins.h"

#include <gtest/gtest.h>

#include <string>

namespace shale {
namespace {

using Node = Tree::Node;

std::unique_ptr<Twin> make_twin(std::string_view name, const Tree& tree, const EvictionOptions& options) {
  const std::size_t capacity = options.capacity_blocks;
  // Leaves of the lowest rank; the newest of equals.
  const auto by = [&](auto score) -> std::unique_ptr<Twin> {
    const auto before = [score](const Node& a, const Node& b) {
      return score(a) != score(b) ? score(a) < score(b) : a.inserted > b.inserted;
    };
    return std::make_unique<RankTwin<decltype(before)>>(tree, before);
  };
  if (name == "lru") return by([](const Node& node) { return node.last_access; });
  if (name == "lfu") return by([](const Node& node) { return node.visits; });
  if (name == "hybrid_tabulated") return by([](const Node& node) { return 2 * node.last_access + 5 * node.visits; });
  if (name == "hybrid") {
    const auto length = [counts = options.hybrid_counts_length](const Node& node) { return counts ? node.depth : 1; };
    const auto before = [&tree, length](const Node& a, const Node& b) {
      const std::uint64_t left = a.visits * length(a) * (1 + tree.tick() - b.last_access);
      const std::uint64_t right = b.visits * length(b) * (1 + tree.tick() - a.last_access);
      return left != right ? left < right : a.inserted > b.inserted;
    };
    return std::make_unique<RankTwin<decltype(before)>>(tree, before);
  }
  if (name == "fifo") return std::make_unique<FifoTwin>(tree, capacity);
  if (name == "gdsf") return std::make_unique<GdsfTwin>(tree, capacity);
  if (name == "lru_k") return std::make_unique<LruKTwin>(tree, capacity);
  if (name == "sieve") return std::make_unique<SieveTwin>(tree, capacity);
  if (name == "s3fifo") return std::make_unique<S3FifoTwin>(tree, capacity);
  if (name == "arc") return std::make_unique<ArcTwin>(tree, capacity);
  if (name == "slru") return std::make_unique<SlruTwin>(tree, capacity);
  if (name == "wtinylfu") return std::make_unique<WTinyLfuTwin>(tree, capacity);
  return nullptr;
}

void expect_same(std::string_view name, const EvictionOptions& options, std::size_t path_max, int requests) {
  std::mt19937 random(11);
  const auto policy = std::move(make_eviction_policy(name, options).value());
  Tree tree(*policy);
  const auto twin = make_twin(name, tree, options);
  ASSERT_TRUE(twin) << "a policy has a naive twin here, which says what it does without its data structures";
  std::vector<NodeId> newcomers;
  const auto settle = [&] {
    for (const NodeId id : newcomers) twin->arrive(id);
    newcomers.clear();
  };
  for (int request = 0; request < requests; ++request) {
    settle();
    const Tree::Visit visit = tree.serve(random_path(random, path_max), random() % 3 == 0);
    for (std::size_t i = visit.path.size(); i-- > 0;) {
      if (i < visit.inserted_from) {
        twin->hit(visit.path[i]);
      } else {
        twin->arriving(visit.path[i]);
        newcomers.push_back(visit.path[i]);
      }
    }
    if (!twin->newcomers_wait()) settle();
    while (tree.size() > options.capacity_blocks) {
      NodeId leaf = twin->victim();
      if (leaf == kNoNode) {
        settle();
        leaf = twin->victim();
      }
      ASSERT_EQ(policy->victim(), leaf) << "request " << request;
      twin->gone(leaf);
      tree.evict(leaf);
    }
  }
}

class TwinsTest : public testing::TestWithParam<std::string_view> {
 protected:
  void expect_same(std::size_t capacity, std::size_t path_max, int requests) {
    shale::expect_same(GetParam(), {.capacity_blocks = capacity}, path_max, requests);
  }
};

// All but the one that draws lots and the one whose twin is in hazard_test.cc.
std::vector<std::string_view> policies_with_twins() {
  auto names = eviction_policy_names();
  std::vector<std::string_view> with(names.begin(), names.end());
  std::erase_if(with, [](std::string_view name) { return name == "random" || name == "hazard"; });
  return with;
}

INSTANTIATE_TEST_SUITE_P(Registry, TwinsTest, testing::ValuesIn(policies_with_twins()),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(TwinsTest, EvictTheSameOfATree) { expect_same(40, 6, 4000); }
TEST_P(TwinsTest, EvictTheSameOfALargerTree) { expect_same(200, 12, 2000); }
TEST_P(TwinsTest, EvictTheSameWherePathsHardlyFit) { expect_same(8, 10, 2000); }
TEST_P(TwinsTest, EvictTheSameOfBlocksWithoutPrefixes) { expect_same(20, 1, 4000); }

TEST(HybridTest, EvictsTheSameAsItsTwinWhereLengthsDoNotCount) {
  expect_same("hybrid", {.capacity_blocks = 40, .hybrid_counts_length = false}, 6, 4000);
  expect_same("hybrid", {.capacity_blocks = 200, .hybrid_counts_length = false}, 12, 2000);
}

}  // namespace
}  // namespace shale
