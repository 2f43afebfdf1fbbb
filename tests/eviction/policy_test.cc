#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "eviction/policies.h"

namespace shale {
namespace {

// A tree that tells a policy what it does to it.
class Tree {
 public:
  explicit Tree(EvictionPolicy& policy) : policy_(policy) {}

  struct Node {
    NodeId parent = kNoNode;
    std::uint32_t children = 0;
    std::uint64_t last_access = 0, visits = 0, inserted = 0;
  };
  const std::map<NodeId, Node>& nodes() const { return nodes_; }
  bool is_leaf(NodeId id) const { return nodes_.contains(id) && nodes_.at(id).children == 0; }
  bool empty() const { return nodes_.empty(); }
  std::uint64_t tick() const { return tick_; }

  // A request: visits the path down to `hit` (kNoNode for none) and grows `fresh` nodes below it.
  void request(NodeId hit, std::size_t fresh) {
    ++tick_;
    std::vector<NodeId> path;
    for (NodeId id = hit; id != kNoNode; id = nodes_[id].parent) path.push_back(id);
    std::ranges::reverse(path);
    for (const NodeId id : path) {
      nodes_[id].last_access = tick_;
      ++nodes_[id].visits;
    }
    const std::size_t inserted_from = path.size();
    for (; fresh > 0; --fresh) {
      const NodeId id = unused_.empty() ? static_cast<NodeId>(nodes_.size()) : unused_.back();
      if (!unused_.empty()) unused_.pop_back();
      const NodeId parent = path.empty() ? kNoNode : path.back();
      if (parent != kNoNode) ++nodes_[parent].children;
      nodes_[id] = {.parent = parent, .last_access = tick_, .visits = 1, .inserted = ++inserted_};
      path.push_back(id);
    }
    std::vector<BlockKey> keys;
    for (const NodeId id : path) keys.push_back(nodes_[id].inserted);
    policy_.access({.path = path, .keys = keys, .inserted_from = inserted_from, .tick = tick_});
  }
  void evict(NodeId id) {
    const NodeId parent = nodes_.at(id).parent;
    nodes_.erase(id);
    unused_.push_back(id);
    if (parent != kNoNode) --nodes_[parent].children;
    policy_.evicted(id, parent, parent != kNoNode && is_leaf(parent));
  }
  NodeId any(std::mt19937& random) const {
    if (nodes_.empty() || random() % 5 == 0) return kNoNode;
    return std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(random() % nodes_.size()))->first;
  }
  // The leaf of the smallest rank by a scan.
  template <class Rank>
  NodeId lowest_leaf(const Rank& rank) const {
    NodeId lowest = kNoNode;
    for (const auto& [id, node] : nodes_) {
      if (is_leaf(id) && (lowest == kNoNode || rank(node) < rank(nodes_.at(lowest)))) lowest = id;
    }
    return lowest;
  }

 private:
  EvictionPolicy& policy_;
  std::map<NodeId, Node> nodes_;
  std::vector<NodeId> unused_;
  std::uint64_t tick_ = 0, inserted_ = 0;
};

class EvictionPolicyTest : public testing::TestWithParam<std::string_view> {
 protected:
  static std::unique_ptr<EvictionPolicy> make() {
    return std::move(make_eviction_policy(GetParam(), {.capacity_blocks = 60}).value());
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
  policy->access({.tick = 1});
  policy->reconsider();
  EXPECT_EQ(policy->victim(), kNoNode);
}

TEST_P(EvictionPolicyTest, VictimsAreLeavesUntilNothingIsLeft) {
  std::mt19937 random(5);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 3000; ++step) {
    tree.request(tree.any(random), random() % 4);
    while (tree.nodes().size() > 60) {
      ASSERT_TRUE(tree.is_leaf(policy->victim()));
      tree.evict(policy->victim());
    }
  }
  for (; !tree.empty(); tree.evict(policy->victim())) ASSERT_TRUE(tree.is_leaf(policy->victim()));
  EXPECT_EQ(policy->victim(), kNoNode);
}

TEST_P(EvictionPolicyTest, PassedOverLeavesWaitUntilReconsidered) {
  std::mt19937 random(6);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 500; ++step) {
    tree.request(tree.any(random), 1 + random() % 3);
    const NodeId first = policy->victim();
    std::set<NodeId> passed;
    while (policy->victim() != kNoNode) {
      const NodeId leaf = policy->victim();
      ASSERT_TRUE(tree.is_leaf(leaf));
      ASSERT_TRUE(passed.insert(leaf).second) << "the same leaf again";
      policy->pass_over(leaf);
    }
    for (const auto& [id, node] : tree.nodes()) ASSERT_EQ(passed.contains(id), tree.is_leaf(id));
    policy->reconsider();
    ASSERT_EQ(policy->victim(), first);
    if (tree.nodes().size() > 30) tree.evict(first);
  }
}

TEST_P(EvictionPolicyTest, AnyLeafMayGoUnasked) {
  std::mt19937 random(7);
  const auto policy = make();
  Tree tree(*policy);
  for (int step = 0; step < 2000; ++step) {
    tree.request(tree.any(random), 1 + random() % 3);
    const NodeId leaf = tree.any(random);
    if (tree.is_leaf(leaf)) tree.evict(leaf);
    if (!tree.empty()) {
      ASSERT_TRUE(tree.is_leaf(policy->victim()));
    }
  }
}

TEST_P(EvictionPolicyTest, IsDeterministic) {
  std::vector<NodeId> evicted[2];
  for (auto& run : evicted) {
    std::mt19937 random(8);
    const auto policy = make();
    Tree tree(*policy);
    for (int step = 0; step < 1000; ++step) {
      tree.request(tree.any(random), random() % 4);
      while (tree.nodes().size() > 40) {
        run.push_back(policy->victim());
        tree.evict(run.back());
      }
    }
  }
  EXPECT_EQ(evicted[0], evicted[1]);
}

template <class Rank>
void expect_lowest_goes(std::string_view name, const Rank& rank) {
  std::mt19937 random(9);
  const auto policy = std::move(make_eviction_policy(name, {.capacity_blocks = 50}).value());
  Tree tree(*policy);
  for (int step = 0; step < 3000; ++step) {
    tree.request(tree.any(random), random() % 4);
    while (tree.nodes().size() > 50) {
      ASSERT_EQ(policy->victim(), tree.lowest_leaf(rank));
      tree.evict(policy->victim());
    }
  }
}

using Rank = std::pair<std::uint64_t, std::int64_t>;

TEST(Lru, TheOldestLeafGoesTheNewestOfEquals) {
  expect_lowest_goes(
      "lru", [](const Tree::Node& node) { return Rank{node.last_access, -static_cast<std::int64_t>(node.inserted)}; });
}

TEST(Lfu, TheLeastVisitedLeafGoesTheNewestOfEquals) {
  expect_lowest_goes(
      "lfu", [](const Tree::Node& node) { return Rank{node.visits, -static_cast<std::int64_t>(node.inserted)}; });
}

TEST(Lfu, OneRequestIsOneVisit) {
  const auto policy = std::move(make_eviction_policy("lfu", {}).value());
  const NodeId first[] = {0}, second[] = {1};
  const BlockKey keys[] = {7, 8};
  const std::span first_key(keys, 1), second_key(keys + 1, 1);
  policy->access({.path = first, .keys = first_key, .inserted_from = 0, .tick = 1});
  policy->access({.path = second, .keys = second_key, .inserted_from = 0, .tick = 2});
  policy->access({.path = second, .keys = second_key, .inserted_from = 1, .tick = 3});
  policy->access({.path = first, .keys = first_key, .inserted_from = 1, .tick = 4});
  policy->access({.path = first, .keys = first_key, .inserted_from = 1, .tick = 4});
  EXPECT_EQ(policy->victim(), 1);  // both were visited twice; the newest goes
}

}  // namespace
}  // namespace shale
