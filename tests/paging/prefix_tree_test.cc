#include "paging/prefix_tree.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "paging/naive_sequence.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 1, .kv_heads = 2, .head_dim = 8, .block_size = 8};

// Evicts the leaf of the lowest number, which in a tree that only grows is the oldest.
class LowestLeaf final : public EvictionPolicy {
 public:
  void access(const PathAccess& visit) override {
    visits.push_back(
        {visit.inserted_from, {visit.keys.begin(), visit.keys.end()}, visit.last_is_partial, visit.time_s});
    if (visit.inserted_from == visit.path.size()) return;
    if (visit.inserted_from > 0) leaves_.erase(visit.path[visit.inserted_from - 1]);
    leaves_.insert(visit.path.back());
  }
  NodeId victim() override { return leaves_.empty() ? kNoNode : *leaves_.begin(); }
  void evicted(NodeId node, NodeId parent, bool parent_is_leaf) override {
    leaves_.erase(node);
    if (parent_is_leaf) leaves_.insert(parent);
  }
  void pass_over(NodeId node) override {
    leaves_.erase(node);
    passed_over_.insert(node);
  }
  void reconsider() override { leaves_.merge(passed_over_); }

  struct Visit {
    std::size_t hits = 0;
    std::vector<NodeKey> keys;
    bool last_is_partial = false;
    double time_s = 0;
  };
  std::vector<Visit> visits;

 private:
  std::set<NodeId> leaves_, passed_over_;
};

class PrefixTreeTest : public testing::Test {
 protected:
  static std::vector<std::int32_t> tokens(std::int32_t first, std::size_t count) {
    std::vector<std::int32_t> result(count);
    std::iota(result.begin(), result.end(), first);
    return result;
  }
  // Computes `ids` on top of what the tree has and inserts them. What it reused.
  std::uint32_t serve(const std::vector<std::int32_t>& ids) {
    Sequence sequence(*pool_);
    const std::uint32_t reused = tree_.adopt(ids, sequence, ++now_s_);
    EXPECT_TRUE(sequence.append(static_cast<std::uint32_t>(ids.size()) - reused));
    EXPECT_TRUE(tree_.insert(ids, sequence));
    check();
    return reused;
  }
  void check() {
    EXPECT_TRUE(tree_.check_integrity());
    EXPECT_TRUE(pool_->check_integrity());
  }

  std::unique_ptr<PagePool> pool_ = std::move(PagePool::create(kShape, 16 * kShape.block_bytes()).value());
  LowestLeaf* policy_ = new LowestLeaf;  // the tree's
  PrefixTree tree_{*pool_, std::unique_ptr<LowestLeaf>(policy_)};
  double now_s_ = 0;
};

TEST_F(PrefixTreeTest, MatchesTokenByToken) {
  EXPECT_EQ(serve(tokens(0, 20)), 0);
  EXPECT_EQ(tree_.nodes(), 3);
  EXPECT_EQ(tree_.match(tokens(0, 20)), 20);
  EXPECT_EQ(tree_.match(tokens(0, 30)), 20);
  EXPECT_EQ(tree_.match(tokens(0, 11)), 11);
  EXPECT_EQ(tree_.match(tokens(1, 11)), 0);
  EXPECT_EQ(tree_.match({}), 0);
  auto other = tokens(0, 20);
  other[13] = -1;
  EXPECT_EQ(tree_.match(other), 13);
}

TEST_F(PrefixTreeTest, SaltsKnowNothingOfEachOther) {
  serve(tokens(0, 16));
  Sequence salted(*pool_);
  EXPECT_EQ(tree_.adopt(tokens(0, 16), salted, 0, "salt"), 0);
  ASSERT_TRUE(salted.append(16));
  ASSERT_TRUE(tree_.insert(tokens(0, 16), salted, kAllTokens, "salt"));
  check();
  EXPECT_EQ(tree_.nodes(), 4);
  EXPECT_EQ(tree_.match(tokens(0, 16), "salt"), 16);
  EXPECT_EQ(tree_.match(tokens(0, 16), "sal"), 0);
  EXPECT_EQ(tree_.in_use(tokens(0, 16), "salt"), 2);
  EXPECT_EQ(tree_.in_use(tokens(0, 16)), 0);
  salted.clear();
  tree_.clear();
  check();
  EXPECT_EQ(pool_->blocks_free(), 16);
}

// What is published is inserted under every salt that used it.
TEST_F(PrefixTreeTest, BlocksThatSeveralSaltsHoldCanBeEvicted) {
  serve(tokens(0, 16));
  Sequence shared(*pool_);
  tree_.adopt(tokens(0, 16), shared);
  for (const char* salt : {"a", "b"}) ASSERT_TRUE(tree_.insert(tokens(0, 16), shared, kAllTokens, salt));
  EXPECT_EQ(tree_.evictable(), 0);
  EXPECT_EQ(tree_.in_use(tokens(0, 16), "a"), 2);
  EXPECT_FALSE(tree_.evict_until_free(16));
  shared.clear();
  EXPECT_EQ(tree_.nodes(), 6);
  EXPECT_EQ(tree_.evictable(), 2) << "blocks, not nodes";
  EXPECT_EQ(tree_.in_use(tokens(0, 16), "a"), 0);
  check();
  EXPECT_TRUE(tree_.evict_until_free(16));
  EXPECT_EQ(tree_.nodes(), 0);
  check();
}

TEST_F(PrefixTreeTest, ABlockBeforeOnesInUseCannotBeEvicted) {
  serve(tokens(0, 24));
  Sequence holder(*pool_);
  tree_.adopt(tokens(0, 24), holder);
  holder.part();
  std::vector<std::uint32_t> first_block(pool_->shape().block_size);
  std::iota(first_block.begin(), first_block.end(), 0u);
  holder.drop(std::vector(pool_->shape().pages_per_block(), first_block));
  EXPECT_EQ(tree_.evictable(), 0);
  EXPECT_FALSE(tree_.evict_until_free(pool_->blocks_free() + 1));
  holder.clear();
  EXPECT_EQ(tree_.evictable(), 3);
  check();
}

TEST_F(PrefixTreeTest, KnowsWhatGivingReferencesBackWouldLeaveToBeEvicted) {
  serve(tokens(0, 24));
  Sequence holder(*pool_), again(*pool_);
  tree_.adopt(tokens(0, 24), holder);
  tree_.adopt(tokens(0, 8), again);
  std::vector<PoolBlockId> held = holder.blocks(24);
  EXPECT_EQ(tree_.evictable(), 0u);
  EXPECT_EQ(tree_.evictable(held), 2u);
  held.push_back(held.front());
  EXPECT_EQ(tree_.evictable(held), 3u);
  held.erase(held.begin() + 2);
  EXPECT_EQ(tree_.evictable(held), 0u) << "what lies behind them stays";
  EXPECT_EQ(tree_.holders(held.front()), 1u);
}

// As in each step of a full pool.
TEST_F(PrefixTreeTest, WhatIsEvictedForOneWhoSharesNothingIsNotCountedAnew) {
  for (int i = 0; i < 4; ++i) serve(tokens(100 * i, 32));
  EXPECT_EQ(tree_.evictable(), 16u);
  const std::uint64_t counts = tree_.counts();
  Sequence grows(*pool_);
  for (std::uint32_t left = 16; left-- > 0;) {
    ASSERT_TRUE(tree_.evict_until_free(1));
    ASSERT_TRUE(grows.append(8));
    EXPECT_EQ(tree_.evictable(), left);
  }
  EXPECT_EQ(tree_.counts(), counts);
  check();
}

TEST_F(PrefixTreeTest, KnowsWhatIsReproducible) {
  Sequence quick(*pool_), exact(*pool_);
  tree_.adopt(tokens(0, 24), quick);
  ASSERT_TRUE(quick.append(24));
  ASSERT_TRUE(tree_.insert(tokens(0, 24), quick, 11));
  EXPECT_EQ(tree_.match(tokens(0, 24)), 24);
  EXPECT_EQ(tree_.prefix(tokens(0, 24)).reproducible, 11);
  EXPECT_EQ(tree_.prefix(tokens(0, 9)).reproducible, 9);
  EXPECT_EQ(tree_.adopt(tokens(0, 11), exact), 11);
  ASSERT_TRUE(exact.append(9));
  ASSERT_TRUE(tree_.insert(tokens(0, 20), exact, 20));
  check();
  EXPECT_EQ(tree_.prefix(tokens(0, 24)).reproducible, 16) << "of its last node only a part was computed again";
  EXPECT_EQ(tree_.match(tokens(0, 24)), 24);
  quick.clear();
  exact.clear();
  tree_.clear();
  check();
  EXPECT_EQ(pool_->blocks_free(), 16);
}

TEST_F(PrefixTreeTest, AHitInsideANodeSharesItsBlockUntilTheNextAppend) {
  serve(tokens(0, 16));
  EXPECT_EQ(pool_->blocks_free(), 14);
  Sequence sequence(*pool_);
  EXPECT_EQ(tree_.adopt(tokens(0, 11), sequence), 11);
  EXPECT_EQ(sequence.length(), 11);
  EXPECT_EQ(pool_->blocks_free(), 14);
  ASSERT_TRUE(sequence.append(1));
  EXPECT_EQ(pool_->blocks_free(), 13);
  EXPECT_EQ(tree_.match(tokens(0, 16)), 16);
}

TEST_F(PrefixTreeTest, AnExtendedShortLeafIsReplaced) {
  serve(tokens(0, 10));
  EXPECT_EQ(tree_.nodes(), 2);
  EXPECT_EQ(serve(tokens(0, 13)), 10);
  EXPECT_EQ(tree_.nodes(), 2);
  EXPECT_EQ(serve(tokens(0, 30)), 13);
  EXPECT_EQ(tree_.nodes(), 4);
  EXPECT_EQ(serve(tokens(0, 12)), 12);  // a part of what is there adds nothing
  EXPECT_EQ(tree_.nodes(), 4);
  EXPECT_EQ(pool_->blocks_free(), 12);
}

TEST_F(PrefixTreeTest, BranchesLieBesideEachOther) {
  auto left = tokens(0, 16), right = tokens(0, 16);
  right[12] = 100;
  serve(left);
  EXPECT_EQ(serve(right), 12);
  EXPECT_EQ(tree_.nodes(), 3);
  EXPECT_EQ(tree_.match(left), 16);
  EXPECT_EQ(tree_.match(right), 16);
}

TEST_F(PrefixTreeTest, KeysNameBlocksByTheirPrefixInEveryLife) {
  serve(tokens(0, 24));
  serve(tokens(8, 16));
  const auto first = policy_->visits[1].keys, shifted = policy_->visits[3].keys;
  EXPECT_EQ(first.size(), 3);
  EXPECT_NE(shifted[0], first[1]);  // the same tokens after another prefix
  tree_.clear();
  serve(tokens(0, 24));
  EXPECT_EQ(policy_->visits.back().keys, first);
  EXPECT_EQ(policy_->visits.back().hits, 0);
  EXPECT_EQ(policy_->visits.back().time_s, 3);
}

TEST_F(PrefixTreeTest, AGrownLeafHasAnotherKey) {
  serve(tokens(0, 13));
  const auto shorter = policy_->visits.back();
  EXPECT_TRUE(shorter.last_is_partial);
  serve(tokens(0, 16));
  const auto grown = policy_->visits.back();
  EXPECT_FALSE(grown.last_is_partial);
  EXPECT_EQ(grown.hits, 2);
  EXPECT_EQ(grown.keys[0], shorter.keys[0]);
  EXPECT_NE(grown.keys[1], shorter.keys[1]);
}

TEST_F(PrefixTreeTest, OnlyExactAgreeingTokensAreTaken) {
  Sequence sequence(*pool_);
  ASSERT_TRUE(sequence.append(4));
  EXPECT_TRUE(tree_.insert(tokens(0, 4), sequence));
  Sequence ragged = sequence.fork();
  ragged.part();
  EXPECT_EQ(tree_.insert(tokens(0, 4), ragged).error().code, ErrorCode::kInvalidArgument);
  sequence.mark_lossy();
  EXPECT_EQ(tree_.insert(tokens(0, 4), sequence).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(tree_.nodes(), 1);
  check();
}

TEST_F(PrefixTreeTest, EvictsLeafByLeafButNotFromSequences) {
  serve(tokens(0, 32));
  serve(tokens(100, 32));
  Sequence holder(*pool_);
  EXPECT_EQ(tree_.adopt(tokens(0, 16), holder), 16);
  EXPECT_TRUE(tree_.evict_until_free(9));
  EXPECT_EQ(tree_.evictions(), 1);
  EXPECT_EQ(tree_.match(tokens(0, 32)), 24);
  check();
  EXPECT_FALSE(tree_.evict_until_free(15));  // the holder's two blocks stay
  EXPECT_EQ(pool_->blocks_free(), 14);
  EXPECT_EQ(tree_.match(tokens(0, 32)), 16);
  holder.clear();
  EXPECT_TRUE(tree_.evict_until_free(16));
  EXPECT_EQ(tree_.nodes(), 0);
  check();
}

TEST_F(PrefixTreeTest, GivesUpWhatOneSequenceAloneHoldsBesideIt) {
  const auto ids = tokens(0, 32), branch = [&] {
    auto other = ids;
    other[28] = -1;
    return other;
  }();
  serve(ids);
  serve(branch);
  Sequence holder(*pool_), other(*pool_);
  tree_.adopt(ids, holder);
  tree_.adopt(tokens(0, 16), other);
  ASSERT_TRUE(tree_.insert(ids, holder, kAllTokens, "salt"));
  const auto blocks = holder.blocks(32);
  tree_.give_up(blocks);
  check();
  EXPECT_EQ(tree_.match(ids, "salt"), 16) << "two blocks are another's, too";
  EXPECT_EQ(tree_.match(branch), 16) << "what nobody holds goes with the block before it";
  EXPECT_EQ(pool_->references(blocks[2]), 1);
  EXPECT_EQ(pool_->references(blocks[3]), 1);
  other.clear();
  tree_.give_up(blocks);
  check();
  EXPECT_EQ(tree_.nodes(), 0);
  EXPECT_EQ(tree_.evictions(), 9);
  for (const PoolBlockId block : blocks) EXPECT_EQ(pool_->references(block), 1);
  EXPECT_TRUE(holder.check_integrity());
}

// As of a sequence that dropped all tokens of some blocks in between.
TEST_F(PrefixTreeTest, GivesUpBlocksBehindWhichNobodyHoldsAny) {
  const auto ids = tokens(0, 40);
  serve(ids);
  Sequence whole(*pool_);
  tree_.adopt(ids, whole);
  const auto blocks = whole.blocks(40);
  const std::vector<PoolBlockId> held = {blocks[1], blocks[3]};
  pool_->retain_blocks(held);
  whole.clear();
  auto sibling = tokens(0, 16);
  sibling[8] = -1;
  serve(sibling);
  tree_.give_up(held);
  check();
  EXPECT_EQ(tree_.match(ids), 8) << "what lies before them stays";
  EXPECT_EQ(tree_.match(sibling), 16);
  for (const PoolBlockId block : held) EXPECT_EQ(pool_->references(block), 1);
  pool_->release_blocks(held);
}

TEST_F(PrefixTreeTest, ClearForgetsButSequencesKeep) {
  serve(tokens(0, 32));
  Sequence holder(*pool_);
  tree_.adopt(tokens(0, 32), holder);
  tree_.clear();
  EXPECT_EQ(tree_.nodes(), 0);
  EXPECT_EQ(tree_.evictions(), 0);
  EXPECT_EQ(tree_.match(tokens(0, 32)), 0);
  EXPECT_EQ(pool_->blocks_free(), 12);
  EXPECT_TRUE(holder.check_integrity());
  check();
  EXPECT_EQ(serve(tokens(0, 8)), 0);
}

TEST_F(PrefixTreeTest, TellsTheNamesOfPagesThatItEvicts) {
  std::vector<std::uint64_t> gone;
  tree_.on_evicted([&](std::uint64_t name) { gone.push_back(name); });
  const auto ids = tokens(0, 20);
  Sequence sequence(*pool_);
  ASSERT_TRUE(sequence.append(20));
  const std::vector<std::uint64_t> names = {11, 12};
  ASSERT_TRUE(tree_.insert(ids, sequence, kAllTokens, {}, names));
  serve(tokens(100, 8));  // nameless
  sequence.clear();
  EXPECT_TRUE(tree_.evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(gone, (std::vector<std::uint64_t>{12, 11}));  // the half page after them has none
}

}  // namespace
}  // namespace shale
