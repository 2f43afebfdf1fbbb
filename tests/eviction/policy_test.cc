// What every policy of the registry must do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "eviction/tree.h"

namespace shale {
namespace {

constexpr std::size_t kBlocks = 60;

class EvictionPolicyTest : public testing::TestWithParam<std::string_view> {
 protected:
  static std::unique_ptr<EvictionPolicy> make() {
    return std::move(make_eviction_policy(GetParam(), {.capacity_blocks = kBlocks}).value());
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, EvictionPolicyTest, testing::ValuesIn(eviction_policy_names()),
                         [](const auto& each) { return std::string(each.param); });

TEST(EvictionPolicies, AreNamedInOrderAndRefuseOthers) {
  EXPECT_TRUE(std::ranges::is_sorted(eviction_policy_names()));
  const auto unknown = make_eviction_policy("none such", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  for (const auto name : eviction_policy_names())
    EXPECT_THAT(unknown.error().message, testing::HasSubstr(std::string(name)));
}

TEST_P(EvictionPolicyTest, AnEmptyTreeHasNoVictim) {
  const auto policy = make();
  EXPECT_EQ(policy->victim(), kNoNode);
  policy->access({.path = {}, .keys = {}, .tick = 1});
  policy->reconsider();
  EXPECT_EQ(policy->victim(), kNoNode);
}

TEST_P(EvictionPolicyTest, VictimsAreLeavesUntilNothingIsLeft) {
  std::mt19937 random(5);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 3000; ++step) {
    tree.serve(random_path(random));
    while (tree.size() > kBlocks) {
      const NodeId leaf = policy->victim();
      ASSERT_TRUE(tree.is_leaf(leaf));
      ASSERT_EQ(policy->victim(), leaf) << "asking changed the answer";
      tree.evict(leaf);
    }
  }
  for (; !tree.empty(); tree.evict(policy->victim())) ASSERT_TRUE(tree.is_leaf(policy->victim()));
  EXPECT_EQ(policy->victim(), kNoNode);
}

TEST_P(EvictionPolicyTest, APathLongerThanTheTreeMayHoldIsCutFromItsEnd) {
  const auto policy = make();
  Tree tree(*policy);
  std::vector<int> labels(3 * kBlocks, 1);
  for (int step = 0; step < 3; ++step) {
    const Tree::Visit visit = tree.serve(labels);
    for (std::size_t end = labels.size(); end > kBlocks; --end) {
      ASSERT_EQ(policy->victim(), visit.path[end - 1]);
      tree.evict(policy->victim());
    }
  }
}

TEST_P(EvictionPolicyTest, PassedOverLeavesWaitUntilReconsidered) {
  std::mt19937 random(6);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 500; ++step) {
    tree.serve(random_path(random));
    std::set<NodeId> passed;
    while (policy->victim() != kNoNode) {
      const NodeId leaf = policy->victim();
      ASSERT_TRUE(tree.is_leaf(leaf));
      ASSERT_TRUE(passed.insert(leaf).second) << "the same leaf again";
      policy->pass_over(leaf);
    }
    for (const auto& [id, node] : tree.nodes()) ASSERT_EQ(passed.contains(id), tree.is_leaf(id));
    policy->reconsider();
    ASSERT_TRUE(passed.contains(policy->victim()));
    if (tree.size() > kBlocks / 2) tree.evict(policy->victim());
  }
}

TEST_P(EvictionPolicyTest, AnyLeafMayGoOrBePassedOverAtAnyTime) {
  std::mt19937 random(7);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 5000; ++step) {
    switch (random() % 4) {
      case 0:
        if (!tree.empty()) {
          if (const NodeId leaf = tree.any(random); tree.is_leaf(leaf)) tree.evict(leaf);
        }
        break;
      case 1:
        if (const NodeId leaf = policy->victim(); leaf != kNoNode) {
          ASSERT_TRUE(tree.is_leaf(leaf));
          policy->pass_over(leaf);
        }
        break;
      case 2:
        policy->reconsider();
        ASSERT_EQ(policy->victim() == kNoNode, tree.empty());
        break;
      default:
        tree.serve(random_path(random));
    }
    while (tree.size() > 2 * kBlocks && policy->victim() != kNoNode) tree.evict(policy->victim());
  }
}

TEST_P(EvictionPolicyTest, IsDeterministic) {
  std::vector<NodeId> evicted[2];
  for (auto& run : evicted) {
    std::mt19937 random(8);
    const auto policy = make();
    Tree tree(*policy);
    for (int step = 0; step < 1000; ++step) {
      tree.serve(random_path(random));
      while (tree.size() > kBlocks) {
        run.push_back(policy->victim());
        tree.evict(run.back());
      }
    }
  }
  EXPECT_EQ(evicted[0], evicted[1]);
}

TEST_P(EvictionPolicyTest, OneRequestIsOneVisit) {
  // Two visits in one tick change nothing that one does not.
  std::mt19937 random(9);
  const auto once = make(), twice = make();
  Tree tree(*once), same(*twice);
  for (int step = 0; step < 2000; ++step) {
    const auto labels = random_path(random);
    tree.serve(labels);
    const Tree::Visit visit = same.serve(labels);
    std::vector<NodeKey> keys;
    for (const NodeId id : visit.path) keys.push_back(same.node(id).key);
    twice->access({.path = visit.path, .keys = keys, .inserted_from = visit.path.size(), .tick = same.tick()});
    while (tree.size() > kBlocks) {
      ASSERT_EQ(once->victim(), twice->victim());
      same.evict(twice->victim());
      tree.evict(once->victim());
    }
  }
}

TEST(LookUps, RenewTheLastAccessAndCountForNothingElse) {
  for (const auto& [name, next_to_go] : {std::pair("lru", 1), std::pair("lfu", 0)}) {
    const auto policy = std::move(make_eviction_policy(name, {.capacity_blocks = kBlocks}).value());
    Tree tree(*policy);
    const NodeId nodes[] = {tree.serve({1}).path[0], tree.serve({2}).path[0], tree.serve({3}).path[0]};
    tree.serve({2});
    const NodeKey key = tree.node(nodes[0]).key;
    policy->access({.path = {nodes, 1}, .keys = {&key, 1}, .inserted_from = 1, .counts = false, .tick = tree.tick()});
    EXPECT_EQ(policy->victim(), nodes[2]) << name;  // the oldest, and the newest of those visited once
    tree.evict(nodes[2]);
    EXPECT_EQ(policy->victim(), nodes[next_to_go]) << name;
  }
}

}  // namespace
}  // namespace shale
