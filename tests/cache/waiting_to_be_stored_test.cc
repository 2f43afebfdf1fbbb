// What waits to be stored holds pages of the pool, and gives them back.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

TEST_F(CacheTest, WhatIsInUseWaitsToBeEncodedAsWellAndOnce) {
  open();
  const Tokens tokens = tokens_of(23, 160);
  Sequence computed(*pool_);
  compute(tokens, 160, computed);
  cache_->store({.tokens = tokens, .recompute_s = 5, .label = ""}, computed);
  EXPECT_EQ(cache_->blocks_waiting_to_be_stored(), 0u) << "a request has them, the prefix tree or not";
  cache_->insert_prefix(tokens, computed);
  computed.clear();
  EXPECT_EQ(cache_->blocks_waiting_to_be_encoded(), 10u);
  EXPECT_EQ(cache_->blocks_waiting_to_be_stored(), 10u);
  Sequence used(*pool_);
  EXPECT_EQ(fetch(asked(tokens), used), 160u);
  EXPECT_EQ(cache_->blocks_waiting_to_be_encoded(), 10u);
  EXPECT_EQ(cache_->blocks_waiting_to_be_stored(), 0u) << "its pages would not come back";

  NewRun half{.tokens = tokens, .recompute_s = 5, .label = ""};
  half.first = 80;
  half.method = Method::parse("kivi4").value();
  cache_->store(std::move(half), used);
  EXPECT_EQ(cache_->blocks_waiting_to_be_encoded(), 10u) << "counted once";
  drain();
  EXPECT_EQ(cache_->blocks_waiting_to_be_encoded(), 0u);
}

TEST_F(CacheTest, NothingWaitsWhereThePlannerStoresNothing) {
  CacheOptions options;
  options.planner = "prefill";
  open(64 << 20, kUnlimited, options);
  const std::uint32_t free = pool_->blocks_free();
  store(tokens_of(23, 160));
  store(tokens_of(24, 160), 0, Method::parse("kivi4").value());
  EXPECT_EQ(pool_->blocks_free(), free);
  EXPECT_FALSE(cache_->stores_any());
  EXPECT_EQ(cache_->stats().given_up, 0u);
}

TEST_F(CacheTest, StoringIsGivenUpForItsPages) {
  open();
  const std::uint32_t free = pool_->blocks_free();
  store(tokens_of(23, 100));
  store(tokens_of(24, 300));
  EXPECT_GT(cache_->blocks_waiting_to_be_stored(), 0u);
  EXPECT_EQ(cache_->blocks_waiting_to_be_encoded(), cache_->blocks_waiting_to_be_stored());
  EXPECT_TRUE(cache_->give_up_storing());
  EXPECT_TRUE(cache_->give_up_storing());
  EXPECT_FALSE(cache_->give_up_storing());
  EXPECT_EQ(pool_->blocks_free(), free);
  EXPECT_EQ(cache_->stats().given_up, 2u);
  drain();
  EXPECT_TRUE(stored(tokens_of(24, 300)).empty());
}

TEST_F(CacheTest, KnowsWhatGivingUpStoringWouldLeaveFree) {
  open();
  const Tokens tokens = tokens_of(28, 160);
  Sequence computed(*pool_);
  compute(tokens, 160, computed);
  cache_->insert_prefix(tokens, computed);
  NewRun run{.tokens = tokens, .recompute_s = 5, .label = ""};
  run.method = Method::parse("kivi4").value();
  cache_->store(std::move(run), computed);  // in two forms, each of which holds its blocks
  Sequence others(*pool_);
  compute(tokens_of(29, 48), 48, others);
  EXPECT_EQ(cache_->blocks_free_without_storing(), pool_->blocks_total() - 13);
  EXPECT_EQ(cache_->blocks_free_without_storing(others.blocks(48)), pool_->blocks_total() - 10);
  computed.clear();
  EXPECT_EQ(cache_->blocks_free_without_storing(), pool_->blocks_total() - 3);
  while (cache_->give_up_storing()) continue;
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total() - 3));
}

TEST_F(CacheTest, LoadsGiveUpNothingButPrefixesByThemselves) {
  open();
  const Tokens tokens = tokens_of(26, 160);
  store(tokens);
  drain();
  Sequence others(*pool_);
  ASSERT_TRUE(others.append(pool_->blocks_free() / 2 * kShape.block_size));
  store(tokens_of(27, 300));
  Sequence rest(*pool_);
  ASSERT_TRUE(rest.append(pool_->blocks_free() * kShape.block_size));
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(tokens), sequence), 0u);
  Backlog backlog;
  backlog.ensure_free = [&](std::uint32_t blocks) {
    others.clear();
    return pool_->blocks_free() >= blocks;
  };
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence, backlog);
  EXPECT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(sequence.length(), 160u);
  EXPECT_EQ(others.length(), 0u);
  EXPECT_EQ(cache_->stats().given_up, 0u);
  drain();
}

// There is room in memory for half of it.
TEST_F(CacheTest, WhatProvesToBeNearLosslessIsPlacedSoAtOnce) {
  CacheOptions options;
  options.methods = {"int8"};
  open_over_slow_disk(100 * kShape.token_bytes(), options);
  const Tokens tokens = tokens_of(25, 144);
  Sequence computed(*pool_);
  compute(tokens, 144, computed);
  NewRun run{.tokens = tokens, .recompute_s = 5};
  AttentionStatistics& seen = run.statistics;
  seen = {.layers = kShape.layers, .query_heads = kShape.kv_heads, .kv_heads = kShape.kv_heads};
  seen.head_dim = kShape.head_dim;
  seen.tokens = 144;
  seen.window = 16;
  seen.queries.assign(std::size_t{seen.layers} * seen.query_heads * seen.window * seen.head_dim, 0.01F);
  cache_->store(std::move(run), computed);
  drain();
  const auto extents = stored(tokens);
  EXPECT_TRUE(std::ranges::any_of(
      extents, [](const StoreExtent& each) { return each.method.text() == "int8" && each.tiers[0] == 0; }));
}

}  // namespace
}  // namespace shale
