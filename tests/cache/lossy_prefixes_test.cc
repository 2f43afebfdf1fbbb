// What was loaded lossily for one request serves the next from the pool.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"
#include "support/eventually.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

class LossyPrefixesTest : public CacheTest {
 protected:
  void SetUp() override { open_lossy("fixed:knorm+int8@0.5"); }

  void open_lossy(const std::string& planner, double alpha = 1) {
    CacheOptions options;
    options.planner = planner;
    options.alpha = alpha;
    open(64 << 20, kUnlimited, options);
  }

  // Stored, and gone from the pool.
  Tokens at_rest(int seed, std::size_t count = 150) {
    const Tokens tokens = tokens_of(seed, count);
    store(tokens);
    drain();
    return tokens;
  }

  std::string from(const Tokens& tokens, Sequence& sequence, const RequestPolicy& policy = {}) {
    Retrieval retrieval = cache_->retrieve(asked(tokens), policy, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    return retrieval.sources().empty() ? "nothing" : retrieval.sources()[0].where;
  }
  std::string from(const Tokens& tokens, const RequestPolicy& policy = {}) {
    Sequence sequence(*pool_);
    return from(tokens, sequence, policy);
  }

  // Stored whole and in that form, of which so much is thought, and the latter loaded into the pool.
  Tokens pooled_as(int seed, const Method& method, double agreement) {
    const Tokens tokens = tokens_of(seed, 150);
    run_ = store(tokens, 0, method, 0.5);
    drain();
    measured(method, agreement);
    RequestPolicy named;
    named.method = method;
    named.keep = 0.5;
    EXPECT_EQ(from(tokens, named), "memory");
    return tokens;
  }
  void measured(const Method& method, double agreement) {
    ASSERT_TRUE(cache_->metadata_store()->record_quality(
        {.key = run_, .method = method, .keep = 0.5, .quality = agreement, .kl = 0, .questions = 9}));
  }

  Hash128 run_ = {};

  // Of one head's first page.
  std::vector<std::byte> first_page(const Sequence& sequence) {
    const auto bytes = pool_->host_view().bytes(sequence.table(1, 1).pages.front().page);
    return {bytes.begin(), bytes.end()};
  }
};

TEST_F(LossyPrefixesTest, AreSharedByThoseWhoComeAfter) {
  const Tokens tokens = at_rest(1);
  Sequence first(*pool_), second(*pool_);
  EXPECT_EQ(from(tokens, first), "memory");
  const std::uint32_t free = pool_->pages_free();
  EXPECT_EQ(from(tokens, second), "pool");
  EXPECT_EQ(pool_->pages_free(), free) << "every page is shared";
  EXPECT_EQ(second.length(), 144u);
  EXPECT_EQ(second.table(0, 0).tokens, 72u);
  EXPECT_TRUE(second.lossy());
  EXPECT_EQ(first_page(second), first_page(first));

  // Each goes on by itself.
  Tokens question = tokens;
  question.resize(144);
  question.insert(question.end(), 20, 7);
  compute(question, 160, first);
  EXPECT_EQ(second.length(), 144u);
  EXPECT_EQ(from(tokens), "pool");
  EXPECT_TRUE(first.check_integrity());
  EXPECT_TRUE(second.check_integrity());
  EXPECT_TRUE(cache_->check_integrity());
}

TEST_F(LossyPrefixesTest, SayWhatTheyAre) {
  const Tokens tokens = at_rest(2);
  from(tokens);
  Sequence sequence(*pool_);
  const Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  EXPECT_TRUE(retrieval.loaded()) << "at once";
  EXPECT_TRUE(retrieval.lossy());
  ASSERT_EQ(retrieval.sources().size(), 1u);
  EXPECT_EQ(retrieval.sources()[0].method.text(), "knorm+int8");
  EXPECT_NEAR(retrieval.sources()[0].keep, 0.5, 1e-6);
  EXPECT_EQ(retrieval.sources()[0].tokens, 144u);
  EXPECT_EQ(retrieval.sources()[0].bytes, 0u);
  EXPECT_EQ(retrieval.sources()[0].run, cache_->run_of(tokens));
  EXPECT_EQ(cache_->stats().cached.from("pool"), 144u);
}

TEST_F(LossyPrefixesTest, ServeNobodyWhoDemandsExactnessOrAnotherForm) {
  const Tokens tokens = at_rest(3);
  from(tokens);
  EXPECT_EQ(from(tokens, exact(true)), "nothing");
  RequestPolicy named;
  named.method = Method{.scorer = "knorm", .quantizer = "int8"};
  named.keep = 0.5;
  EXPECT_EQ(from(tokens, named), "pool");
  named.keep = 0.25;
  EXPECT_NE(from(tokens, named), "pool");
}

TEST_F(LossyPrefixesTest, ServeNobodyWhoAsksForMoreQuality) {
  open_lossy("shale", 1e-9);  // a tenth of quality is worth less than any load
  const Tokens tokens = pooled_as(4, {.scorer = "knorm", .quantizer = "int8"}, 0.9);
  RequestPolicy policy;
  policy.quality_min = 0.85;
  Sequence good(*pool_), better(*pool_);
  EXPECT_EQ(from(tokens, good, policy), "pool");
  EXPECT_TRUE(good.lossy());
  policy.quality_min = 0.95;
  EXPECT_EQ(from(tokens, better, policy), "memory");
  EXPECT_FALSE(better.lossy());
}

TEST_F(LossyPrefixesTest, ServeNobodyWhomATierServesBetterInLessTimeThanTheLossIsWorth) {
  open_lossy("shale");
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  const Tokens tokens = pooled_as(9, method, 0.4);
  Sequence sequence(*pool_);
  EXPECT_EQ(from(tokens, sequence), "memory");
  EXPECT_FALSE(sequence.lossy());
  Sequence in_pool(*pool_);
  cache_->retrieve(asked(tokens), {}, in_pool, {.engine = {}, .pool_only = true});
  EXPECT_TRUE(in_pool.lossy()) << "where no tier is asked";
}

TEST_F(LossyPrefixesTest, AreJudgedByWhatIsKnownOfThemNow) {
  open_lossy("shale");
  const Method method{.scorer = "knorm", .quantizer = "int8"};
  const Tokens tokens = pooled_as(10, method, 1);
  EXPECT_EQ(from(tokens), "pool");
  measured(method, 0);
  EXPECT_EQ(from(tokens), "memory");
}

// A run that lies lossy in memory and in the pool, though there is room for all of it since another was removed.
class PooledAndPlacedTest : public LossyPrefixesTest {
 protected:
  void open_with(double quality_floor) {
    CacheOptions options;
    options.methods = {"knorm"};
    options.quality_floor = quality_floor;
    open(256 * kShape.token_bytes(), kUnlimited, options);
    tokens_ = at_rest(20);
    run_ = cache_->run_of(tokens_);
    measured(kKnorm, 1);
    const Tokens other = at_rest(21);
    cache_->store().remove_run(cache_->run_of(other));
    drain();
    Sequence sequence(*pool_);
    ASSERT_EQ(from(tokens_, sequence), "memory");
    ASSERT_TRUE(sequence.lossy());
  }
  // And the placement has heard of it.
  void proves_worse() {
    measured(kKnorm, 0.4);
    cache_->place_again(run_);
    cache_->work(executor_);
    drain();
  }
  // Computed by a request that has ended.
  void pooled_exactly(const Tokens& tokens) {
    Sequence sequence(*pool_);
    compute(tokens, tokens.size(), sequence);
    cache_->insert_prefix(tokens, sequence);
  }
  bool rose() {
    return std::ranges::any_of(stored(tokens_), [](const auto& each) { return each.exact && each.tiers[0] == 0; });
  }
  // Of uses that the pool does not answer.
  double frequency() { return cache_->store().problem().prefixes.front().frequency; }

  const Method kKnorm{.scorer = "knorm", .quantizer = "none"};
  Tokens tokens_;
};

TEST_F(PooledAndPlacedTest, LossyPagesKeepNoBetterFormFromRising) {
  open_with(0);
  EXPECT_LT(frequency(), 1) << "it is used twice";
  proves_worse();
  EXPECT_TRUE(rose());
  EXPECT_LT(frequency(), 1) << "who asks for no quality may still take the pages";
}

TEST_F(PooledAndPlacedTest, WhereAnotherBeginsAlikeTheyAreLossyAsBefore) {
  open_with(0);
  Tokens another = tokens_of(22, 64);
  std::copy_n(tokens_.begin(), 2 * kShape.block_size, another.begin());
  pooled_exactly(another);
  proves_worse();
  EXPECT_TRUE(rose());
}

TEST_F(PooledAndPlacedTest, WhatIsEvictedBesideThemLeavesThemLossy) {
  open_with(0);
  pooled_exactly(tokens_);
  ASSERT_EQ(cache_->pool_prefix(tokens_), 150u);
  RequestPolicy named;
  named.method = kKnorm;
  named.keep = 0.5;
  from(tokens_, named);  // the pages are newer than the exact ones
  cache_->evict_until_free(pool_->blocks_free() + 10);
  ASSERT_EQ(cache_->pool_prefix(tokens_), 0u);
  proves_worse();
  EXPECT_TRUE(rose());
}

TEST_F(PooledAndPlacedTest, WhatAnotherProcessMeasuredCountsToo) {
  open_with(0.5);
  const auto other = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
  ASSERT_TRUE(
      other->record_quality({.key = run_, .method = kKnorm, .keep = 0.5, .quality = 0.4, .kl = 0, .questions = 9}));
  EXPECT_TRUE(testing::eventually([&] {
    cache_->work(executor_);
    return frequency() > 1;
  }));
}

TEST_F(PooledAndPlacedTest, LossyPagesCountOnlyWhileRequestsMayTakeThem) {
  open_with(0.5);
  EXPECT_LT(frequency(), 1);
  proves_worse();
  EXPECT_GT(frequency(), 1);
}

TEST_F(LossyPrefixesTest, AreFollowedByWhatTiersHaveOfTheRest) {
  const Tokens conversation = at_rest(5, 144);
  Tokens longer = conversation;
  longer.resize(250, 11);
  from(conversation);
  store(longer, 144);
  drain();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(longer), {}, sequence);
  ASSERT_EQ(retrieval.sources().size(), 2u);
  EXPECT_EQ(retrieval.sources()[0].where, "pool");
  EXPECT_EQ(retrieval.sources()[1].where, "memory");
  EXPECT_EQ(retrieval.tokens(), 240u);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(sequence.length(), 240u);
  EXPECT_TRUE(sequence.check_integrity());
  EXPECT_EQ(from(longer), "pool") << "all of it now";
}

TEST_F(LossyPrefixesTest, ThoseThatBeganAlikeCountTheirCommonPagesOnce) {
  const Tokens conversation = at_rest(5, 144);
  from(conversation);
  std::vector<Tokens> longer(2, conversation);
  for (int i = 0; i < 2; ++i) {
    longer[i].resize(250, 11 + i);
    store(longer[i], 144);
    drain();
    EXPECT_EQ(from(longer[i]), "pool");
  }
  const std::uint32_t total = pool_->blocks_total();
  const auto in_use = [&](const Tokens& tokens) { return cache_->pool_blocks_in_use(asked(tokens), {}); };
  EXPECT_EQ(cache_->blocks_evictable() + pool_->blocks_free(), total);
  EXPECT_EQ(in_use(conversation), 0u);
  {
    Sequence held(*pool_);
    EXPECT_EQ(from(longer[0], held), "pool");
    const std::uint32_t blocks = kShape.blocks_for_pages(held.pages());
    EXPECT_EQ(cache_->blocks_evictable() + pool_->blocks_free() + blocks, total);
    EXPECT_EQ(in_use(longer[0]), blocks);
    EXPECT_EQ(in_use(longer[1]), in_use(conversation)) << "what it has in common with what is held";
    EXPECT_FALSE(cache_->evict_until_free(total));
    EXPECT_EQ(pool_->blocks_free() + blocks, total);
  }
  EXPECT_TRUE(cache_->evict_until_free(total));
}

// What is loaded behind exact blocks shares these with the tree.
TEST_F(LossyPrefixesTest, BlocksThatTheTreeHasTooCanBeEvicted) {
  const Tokens conversation = at_rest(5, 144);
  {
    Sequence computed(*pool_);
    compute(conversation, 144, computed);
    cache_->insert_prefix(conversation, computed);
  }
  Tokens longer = conversation;
  longer.resize(250, 11);
  store(longer, 144);
  drain();
  Sequence sequence(*pool_);
  EXPECT_EQ(from(longer, sequence), "pool");
  EXPECT_TRUE(sequence.lossy());
  sequence.clear();
  EXPECT_EQ(cache_->blocks_evictable() + pool_->blocks_free(), pool_->blocks_total());
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
}

TEST_F(LossyPrefixesTest, WhatWasUsedLongestAgoIsEvictedFirst) {
  const Tokens first = at_rest(6), second = at_rest(7);
  const Tokens third = tokens_of(8, 160);
  {
    from(first);
    Sequence computed(*pool_);
    cache_->retrieve(asked(third), {}, computed);  // begins a request
    compute(third, 160, computed);
    cache_->insert_prefix(third, computed);
    from(second);
  }
  from(first);
  EXPECT_EQ(cache_->blocks_evictable() + pool_->blocks_free(), pool_->blocks_total());
  ASSERT_TRUE(cache_->evict_until_free(pool_->blocks_free() + 1));
  EXPECT_LT(cache_->pool_prefix(third), 160u) << "exact blocks, older than both";
  EXPECT_EQ(from(second), "pool");
  Sequence held(*pool_);
  EXPECT_EQ(from(second, held), "pool");
  EXPECT_FALSE(cache_->evict_until_free(pool_->blocks_total())) << "one of them is in use";
  EXPECT_EQ(cache_->pool_prefix(third), 0u);
  EXPECT_EQ(from(second), "pool");
  held.clear();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(from(first), "memory");
  EXPECT_TRUE(cache_->check_integrity());
}

TEST_F(LossyPrefixesTest, WhatIsDamagedIsSharedWithNobody) {
  CacheOptions options;
  options.planner = "fixed:knorm+int8@0.5";
  options.chunk_tokens = 32;
  open(0, kUnlimited, options);
  const Tokens tokens = at_rest(9, 400);
  cache_.reset();
  damage_middle_of_blobs();
  open(0, kUnlimited, options);
  {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    ASSERT_EQ(retrieval.tokens(), 400u);
    EXPECT_FALSE(retrieval.ensure_all(executor_));
    ASSERT_TRUE(retrieval.failure());
    EXPECT_GT(retrieval.failure()->block, 0u) << "there is a front that came";
    retrieval = cache_->keep_what_came(std::move(retrieval), sequence);
    EXPECT_EQ(retrieval.tokens(), 0u);
    EXPECT_EQ(sequence.length(), 0u) << "what was kept of it is ranked over all of it";
    EXPECT_EQ(cache_->stats().failed_loads, 1u);
  }
  {
    Sequence again(*pool_);
    const Retrieval retrieval = cache_->retrieve(asked(tokens), {}, again);
    for (const SourceUsed& source : retrieval.sources()) EXPECT_NE(source.where, "pool");
    EXPECT_LT(retrieval.tokens(), 400u) << "never served again";
  }
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

// Nor one whose heads have pages of their own, which are in no order that the store knows.
TEST_F(CacheTest, ALossySequenceIsNotStored) {
  open();
  const Tokens tokens = tokens_of(10, 150);
  for (const bool ragged : {false, true}) {
    Sequence computed(*pool_);
    compute(tokens, 150, computed);
    if (ragged) {
      computed.part();
    } else {
      computed.mark_lossy();
    }
    cache_->store({.tokens = tokens, .recompute_s = 5, .label = "a document"}, computed);
    computed.clear();
    drain();
    EXPECT_TRUE(stored(tokens).empty());
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence, exact(true)), 0u);
  }
}

}  // namespace
}  // namespace shale
