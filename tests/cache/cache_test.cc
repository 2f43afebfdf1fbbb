#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

TEST_F(CacheTest, AStoredRunComesBackBitForBitFromMemoryAndAfterRestartFromDisk) {
  open();
  const Tokens tokens = tokens_of(1, 150);
  store(tokens);
  drain();
  for (const char* where : {"memory", "disk"}) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    ASSERT_EQ(retrieval.tokens(), 144u) << "whole blocks";
    EXPECT_FALSE(retrieval.lossy());
    ASSERT_EQ(retrieval.sources().size(), 1u);
    EXPECT_EQ(retrieval.sources()[0].where, where);
    EXPECT_EQ(retrieval.sources()[0].run, cache_->run_of(tokens));
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_TRUE(retrieval.loaded());
    expect_exact(tokens, sequence);
    retrieval = Retrieval();
    sequence.clear();
    open();
  }
}

TEST_F(CacheTest, WhatWasStoredWithASaltIsFoundWithItAlone) {
  open();
  const Tokens tokens = tokens_of(1, 150);
  Sequence computed(*pool_);
  compute(tokens, 150, computed);
  NewRun run{.tokens = tokens, .recompute_s = 5, .label = "a document"};
  run.salt = "salt";
  cache_->store(std::move(run), computed);
  cache_->insert_prefix(tokens, computed, kAllTokens, "salt");
  computed.clear();
  drain();
  for (const std::string where : {"pool", "disk"}) {
    for (const std::string salt : {"", "sal", "salt"}) {
      Sequence sequence(*pool_);
      RequestPolicy policy;
      policy.salt = salt;
      const Retrieval retrieval = cache_->retrieve(asked(tokens), policy, sequence);
      EXPECT_EQ(retrieval.tokens(), salt != "salt" ? 0u : where == "pool" ? 150u : 144u) << where << " " << salt;
    }
    open();
  }
}

// Of a published prefix everybody finds what was left without a salt, and of nothing else.
TEST_F(CacheTest, WhatIsPublishedIsFoundByEverySalt) {
  open();
  const Tokens rules = tokens_of(1, 70);
  Tokens asked_by_ann = rules, secret = tokens_of(3, 70);
  const Tokens question = tokens_of(2, 80);
  asked_by_ann.insert(asked_by_ann.end(), question.begin(), question.end());
  for (const Tokens& text : {rules, secret}) {
    Sequence computed(*pool_);
    compute(text, text.size(), computed);
    cache_->store({.tokens = text, .recompute_s = 5, .label = "rules"}, computed);
    cache_->insert_prefix(text, computed);
  }
  drain();
  cache_->publish(rules);
  const auto found = [&](const Tokens& tokens, const std::string& salt) {
    Sequence sequence(*pool_);
    RequestPolicy policy;
    policy.salt = salt;
    return cache_->retrieve(asked(tokens), policy, sequence).tokens();
  };
  const std::string ann = salt_of("ann", ""), bob = salt_of("bob", "room");
  for (const char* where : {"pool", "disk"}) {
    EXPECT_EQ(found(asked_by_ann, ann), 64u) << where << ", in whole blocks";
    EXPECT_EQ(found(asked_by_ann, bob), 64u) << where;
    EXPECT_EQ(found(secret, ann), 0u) << where << ": it is not published";
    EXPECT_EQ(found(tokens_of(3, 70), bob), 0u);
    open();
    cache_->publish(rules);
  }

  // What follows it lies under the salt with it, and is found from its first block on by that salt alone.
  Sequence computed(*pool_);
  compute(asked_by_ann, asked_by_ann.size(), computed);
  NewRun turn{.tokens = asked_by_ann, .first = 64, .recompute_s = 5, .label = "turn"};
  turn.salt = ann;
  cache_->store(std::move(turn), computed);
  computed.clear();
  drain();
  open();
  cache_->publish(rules);
  EXPECT_EQ(found(asked_by_ann, ann), 144u);
  EXPECT_EQ(found(asked_by_ann, bob), 64u);
  EXPECT_EQ(tenant_of(ann), "ann");
  EXPECT_EQ(tenant_of(bob), "bob");
  EXPECT_EQ(tenant_of(salt_of("", "a\nb")), "") << "a salt names no tenant";
  EXPECT_EQ(salt_of("", ""), "");
}

TEST_F(CacheTest, ExactPagesInThePoolComeFirst) {
  open();
  const Tokens tokens = tokens_of(2, 100);
  Sequence computed(*pool_);
  compute(tokens, 100, computed);
  cache_->insert_prefix(tokens, computed);
  Sequence sequence(*pool_);
  const Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  EXPECT_EQ(retrieval.tokens(), 100u) << "token by token";
  EXPECT_EQ(retrieval.tokens_loaded(), 0u);
  EXPECT_EQ(retrieval.sources()[0].where, "pool");
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, LeavesTheLastTokenToCompute) {
  open();
  const Tokens tokens = tokens_of(3, 64);
  store(tokens);
  drain();
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(tokens, sequence), 48u);
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, AHitMayEndInsideARunAndFollowAChain) {
  open();
  const Tokens conversation = tokens_of(4, 130);
  store({conversation.begin(), conversation.begin() + 77});
  store(conversation, 64);
  drain();
  open();  // the pool knows nothing
  Tokens other = conversation;
  other[110] = 1234;
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(other, sequence), 96u);
  expect_exact(conversation, sequence);
}

TEST_F(CacheTest, TheFrontIsOfThePoolAndTheRestOfATier) {
  CacheOptions options;
  options.chunk_tokens = 32;
  open(64 << 20, kUnlimited, options);
  const Tokens tokens = tokens_of(5, 200);
  store(tokens);
  drain();
  Sequence computed(*pool_);
  compute(tokens, 70, computed);
  cache_->insert_prefix(std::span(tokens).first(70), computed);
  computed.clear();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  ASSERT_EQ(retrieval.sources().size(), 2u);
  EXPECT_EQ(retrieval.sources()[0].where, "pool");
  EXPECT_EQ(retrieval.sources()[0].tokens, 64u) << "up to where a chunk begins";
  EXPECT_EQ(retrieval.sources()[1].tokens, 192u - 64u);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, TokensComputedWhileARunLoadsStayWhereTheyAre) {
  open();
  const Tokens tokens = tokens_of(9, 117);
  store({tokens.begin(), tokens.begin() + 85});
  drain();
  open();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(tokens, {}, sequence);
  ASSERT_EQ(retrieval.tokens(), 80u);
  compute(tokens, 117, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  expect_exact(tokens, sequence);
}

TEST_F(CacheTest, ANamedMethodIsLossyAndNeverServesAnExactRequest) {
  open();
  const Tokens tokens = tokens_of(5, 200);
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  store(tokens, 0, method, 0.5);
  drain();
  open();
  {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {.method = method, .keep = 0.5}, sequence);
    EXPECT_TRUE(retrieval.lossy());
    ASSERT_EQ(retrieval.sources().size(), 1u);
    EXPECT_EQ(retrieval.sources()[0].method, method);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_EQ(retrieval.tokens(), 192u);
    EXPECT_EQ(sequence.table(0, 0).tokens, 96u);
    EXPECT_EQ(sequence.length(), 192u);
    EXPECT_TRUE(sequence.lossy());
    EXPECT_TRUE(sequence.check_integrity());
  }
  {
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence, exact(true)), 192u) << "the exact copy";
    EXPECT_FALSE(sequence.lossy());
    expect_exact(tokens, sequence);
  }
  // Nobody measured what knorm+int8 does to answers: without being named it is not used.
  Sequence sequence(*pool_);
  EXPECT_FALSE(cache_->retrieve(asked(tokens), {}, sequence).lossy());
}

// Another document behind the same template head must not be computed on top of a lossy copy of that head.
TEST_F(CacheTest, AHitThatEndsInsideARunIsExact) {
  open();
  const Tokens tokens = tokens_of(6, 200);
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  const Hash128 run = store(tokens, 0, method, 0.5);
  drain();
  ASSERT_TRUE(cache_->metadata_store()->record_quality(
      {.key = run, .method = method, .keep = 0.5, .quality = 1, .kl = 0, .questions = 1}));
  Tokens other = tokens;
  for (std::size_t i = 40; i < other.size(); ++i) other[i] += 1;
  for (const RequestPolicy& policy : {RequestPolicy{}, RequestPolicy{.method = method, .keep = 0.5}}) {
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(other), sequence, policy), 32u);
    EXPECT_FALSE(sequence.lossy());
    expect_exact(tokens, sequence);
  }
  Sequence sequence(*pool_);
  EXPECT_TRUE(cache_->retrieve(asked(tokens), {.method = method, .keep = 0.5}, sequence).lossy()) << "the whole run";
}

TEST_F(CacheTest, DamageIsACountedMissOfWhatItHit) {
  CacheOptions options;
  options.chunk_tokens = 32;
  open(0, kUnlimited, options);
  const Tokens tokens = tokens_of(6, 170);
  store(tokens);
  drain();
  cache_.reset();
  damage_middle_of_blobs();
  open(0, kUnlimited, options);
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  ASSERT_EQ(retrieval.tokens(), 160u);
  EXPECT_FALSE(retrieval.ensure_all(executor_));
  ASSERT_TRUE(retrieval.failure());
  EXPECT_EQ(retrieval.failure()->error.code, ErrorCode::kCorrupt);
  retrieval = cache_->keep_what_came(std::move(retrieval), sequence);
  const std::uint32_t came = sequence.length();
  EXPECT_GT(came, 0u) << "what lies before the damage";
  EXPECT_LT(came, 160u);
  EXPECT_EQ(retrieval.tokens(), came);
  EXPECT_TRUE(retrieval.loaded());
  expect_exact(tokens, sequence);
  EXPECT_EQ(cache_->stats().failed_loads, 1u);
  EXPECT_GE(cache_->store().stats().damaged_chunks, 1u);

  Sequence again(*pool_);
  EXPECT_LT(fetch(asked(tokens), again), 160u) << "never served again";
  again.clear();
  store(tokens);
  drain();
  EXPECT_EQ(fetch(asked(tokens), again), 160u);
  expect_exact(tokens, again);
}

TEST_F(CacheTest, WhatTwoPromptsShareIsStoredOnce) {
  CacheOptions options;
  options.chunk_tokens = 32;
  open(0, kUnlimited, options);
  const Tokens one = tokens_of(20, 320);
  Tokens other = one;
  for (std::size_t i = 160; i < other.size(); ++i) other[i] += 1;
  store(one);
  drain();
  const std::uint64_t bytes = cache_->tiers()[1]->used_bytes();
  store(other);
  drain();
  const auto added = static_cast<double>(cache_->tiers()[1]->used_bytes() - bytes);
  EXPECT_LT(added, 0.6 * static_cast<double>(bytes));
  EXPECT_EQ(cache_->store().stats().blocks_shared, 10u);
  for (const Tokens& tokens : {one, other}) {
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence), 320u);
    expect_exact(tokens, sequence);
  }
}

TEST_F(CacheTest, WhatAnotherCacheStoresOnTheFolderIsFoundWithoutRestart) {
  open();
  auto other = open_another(64 << 20, kUnlimited, {});
  const Tokens tokens = tokens_of(21, 100);
  store(tokens);
  drain();
  std::uint32_t found = 0;
  const double until_s = clock_.now_s() + 2;
  while (found == 0 && clock_.now_s() < until_s) {
    other->work(executor_);
    Sequence sequence(*pool_);
    Retrieval retrieval = other->retrieve(asked(tokens), {}, sequence);
    ASSERT_TRUE(retrieval.ensure_all(executor_));
    found = retrieval.tokens();
    if (found > 0) expect_exact(tokens, sequence);
  }
  EXPECT_EQ(found, 96u);
}

TEST_F(CacheTest, APartialHitReadsTheChunksThatItUsesOnly) {
  CacheOptions options;
  options.chunk_tokens = 32;
  open(0, kUnlimited, options);
  const Tokens tokens = tokens_of(22, 320);
  store(tokens);
  drain();
  const auto read = [&](const Tokens& prompt) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(prompt, {}, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    expect_exact(tokens, sequence);
    return retrieval.sources().empty() ? 0 : retrieval.sources().front().bytes;
  };
  Tokens other = tokens;
  for (std::size_t i = 64; i < other.size(); ++i) other[i] += 1;
  const std::uint64_t before = cache_->tiers()[1]->stats().read_bytes;
  const std::uint64_t some = read(asked(other));
  const std::uint64_t some_read = cache_->tiers()[1]->stats().read_bytes - before;
  const std::uint64_t all = read(asked(tokens));
  EXPECT_LT(some, all / 4);
  EXPECT_LT(some_read, all / 3);
}

TEST_F(CacheTest, MoreRunsThanMemoryHoldsSpreadOverTheTiers) {
  const std::uint64_t run_bytes = 160 * kShape.token_bytes();
  open(3 * run_bytes, kUnlimited);
  for (int i = 0; i < 8; ++i) {
    store(tokens_of(100 + i, 150));
    drain();
  }
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 3 * run_bytes);
  for (int i = 0; i < 8; ++i) {
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens_of(100 + i, 150)), sequence), 144u) << i;
    expect_exact(tokens_of(100 + i, 150), sequence);
  }
}

TEST_F(CacheTest, AFullDiskCostsTheRunNotTheAnswer) {
  open(0, 2 * 160 * kShape.token_bytes());
  for (int i = 0; i < 6; ++i) {
    store(tokens_of(300 + i, 150));
    drain();
  }
  EXPECT_LE(cache_->tiers()[1]->used_bytes(), cache_->tiers()[1]->capacity_bytes());
  std::size_t found = 0;
  for (int i = 0; i < 6; ++i) {
    Sequence sequence(*pool_);
    found += fetch(asked(tokens_of(300 + i, 150)), sequence) == 144;
  }
  EXPECT_GE(found, 1u);
}

TEST_F(CacheTest, AnotherModelsExtentsAreNotFound) {
  open();
  store(tokens_of(8, 90));
  drain();
  cache_.reset();
  std::vector<StoreTier> tiers;
  tiers.push_back(disk_tier());
  cache_ = Cache::open({}, {.hash = {8, 8}, .model = "other"}, *pool_, std::move(tiers), nullptr, clock_).value();
  Sequence sequence(*pool_);
  EXPECT_EQ(cache_->retrieve(asked(tokens_of(8, 90)), {}, sequence).tokens(), 0u);
  EXPECT_FALSE(cache_->tiers()[0]->list()->empty());
}

}  // namespace
}  // namespace shale
