// What is computed behind lossy KV is kept for whoever accepts as much, and met by nobody else.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

constexpr double kNearlyAll = 0.97;

class BehindLossyTest : public CacheTest {
 protected:
  // All on the disk.
  void open_with(const std::string& planner) {
    CacheOptions options;
    options.planner = planner;
    options.methods = {"int8", "knorm+int8"};
    open(1 << 10, kUnlimited, options);
  }

  // A document of 144 tokens, at rest in that form alone, of which so much is expected.
  Tokens document(const std::string& method = "int8", double keep = 1) {
    const Tokens tokens = tokens_of(1, 144);
    open_with("fixed:" + method + (keep < 1 ? "@0.5" : ""));
    const Hash128 run = store(tokens);
    drain();
    open_with("shale");
    EXPECT_TRUE(cache_->metadata_store()->record_quality({.key = run,
                                                          .method = Method::parse(method).value(),
                                                          .keep = keep,
                                                          .quality = kNearlyAll,
                                                          .kl = 0,
                                                          .questions = 99}));
    return tokens;
  }

  static Tokens followed_by(Tokens tokens, std::size_t count, int seed) {
    const Tokens more = tokens_of(seed, count);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  // As an engine does: what is found is loaded, the rest computed and stored.
  std::uint32_t serve(const Tokens& tokens, const RequestPolicy& policy = {}, bool keep = false) {
    const std::uint32_t found = begin_to_store(tokens, policy, keep);
    drain();
    EXPECT_TRUE(cache_->check_integrity());
    return found;
  }
  // The same for those that keep it in the pool, too.
  std::uint32_t serve_and_keep(const Tokens& tokens, const RequestPolicy& policy = {}) {
    return serve(tokens, policy, true);
  }
  std::uint32_t begin_to_store(const Tokens& tokens, const RequestPolicy& policy, bool keep) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), policy, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    const std::uint32_t found = retrieval.tokens();
    compute(tokens, tokens.size(), sequence);
    NewRun run{.tokens = tokens, .first = found};
    run.lossy_from = retrieval.lossy_from();
    run.inherited = expected_quality(retrieval.sources());
    run.salt = policy.salt;
    if (keep) cache_->insert_behind_lossy(tokens, sequence, retrieval.sources(), run.lossy_from, policy.salt);
    cache_->store(std::move(run), sequence);
    return found;
  }

  std::uint32_t found(const Tokens& tokens, const RequestPolicy& policy = {}) {
    Sequence sequence(*pool_);
    return fetch(asked(tokens), sequence, policy);
  }

  // In pages that it has already; what was computed behind lossy KV begins at 144.
  Retrieval of_the_pool(const Tokens& tokens, Sequence& sequence, std::uint32_t length, std::uint32_t pages_free) {
    Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    EXPECT_TRUE(retrieval.loaded()) << "of the pool";
    EXPECT_EQ(retrieval.tokens(), length);
    EXPECT_EQ(retrieval.lossy_from(), 144u);
    EXPECT_EQ(pool_->pages_free(), pages_free) << "every page is shared";
    return retrieval;
  }

  void empty_pool() { cache_->evict_until_free(pool_->blocks_total()); }
};

TEST_F(BehindLossyTest, ItIsFoundTurnAfterTurn) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 64, 3);
  EXPECT_EQ(serve(second), 144u);
  empty_pool();
  EXPECT_EQ(serve(third), 240u);
  empty_pool();
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(followed_by(third, 32, 4)), {}, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(retrieval.tokens(), 304u);
  EXPECT_EQ(retrieval.lossy_from(), 144u);
  EXPECT_TRUE(sequence.lossy());
  ASSERT_EQ(retrieval.sources().size(), 3u);
  EXPECT_FALSE(retrieval.sources()[0].behind_lossy);
  for (const SourceUsed& source : {retrieval.sources()[1], retrieval.sources()[2]}) {
    EXPECT_TRUE(source.behind_lossy && source.lossy());
    ASSERT_TRUE(source.quality);
    EXPECT_LE(*source.quality, *retrieval.sources()[0].quality) << "no more than what it was computed behind";
  }
  EXPECT_TRUE(sequence.check_integrity());
}

TEST_F(BehindLossyTest, WhoDemandsExactKvOrNamesAFormNeverMeetsIt) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve(second);
  for (const bool pooled : {true, false}) {
    if (!pooled) empty_pool();
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(third), sequence, exact(true)), 0u) << pooled;
    RequestPolicy named;
    named.method = Method::parse("int8").value();
    EXPECT_EQ(found(third, named), 144u) << pooled;
  }
}

TEST_F(BehindLossyTest, WhoAsksForMoreThanItInheritedIsServedWithout) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve(second);
  const Hash128 run = cache_->run_of(second);
  const auto inherited = cache_->metadata_store()->inherited(run);
  ASSERT_TRUE(inherited);
  cache_->metadata_store()->inherit(run, 0.9);  // an older, worse copy of the document
  for (const bool pooled : {true, false}) {
    if (!pooled) empty_pool();
    RequestPolicy policy;
    policy.quality_min = 0.85;
    EXPECT_EQ(found(third, policy), 240u) << pooled;
    policy.quality_min = 0.93;
    EXPECT_EQ(found(third, policy), 144u) << pooled;
    EXPECT_EQ(serve(second, policy), 144u) << "computed anew, behind better";
    EXPECT_EQ(found(third, policy), 144u) << "and not stored anew: what is there is what it was";
  }
}

TEST_F(BehindLossyTest, WhatItInheritedIsKnownAfterARestart) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve(second);
  const double inherited = cache_->metadata_store()->inherited(cache_->run_of(second)).value();
  open_with("shale");
  EXPECT_NEAR(cache_->metadata_store()->inherited(cache_->run_of(second)).value(), inherited, 1e-6);
  EXPECT_EQ(found(third), 240u);
}

// As a server is that is killed: nobody is told anything in the end.
TEST_F(BehindLossyTest, WhatItInheritedIsKnownAfterACrash) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve(second);
  const double inherited = cache_->metadata_store()->inherited(cache_->run_of(second)).value();
  const std::unique_ptr<Cache> killed = std::move(cache_);
  open_with("shale");  // and ends, after which all is forgotten that nobody uses
  open_with("shale");
  EXPECT_NEAR(cache_->metadata_store()->inherited(cache_->run_of(second)).value(), inherited, 1e-6);
  EXPECT_EQ(found(third), 240u);
}

TEST_F(BehindLossyTest, WhatIsOfUnknownWorthIsNotServedAndIsReplaced) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve(second);
  ASSERT_TRUE(cache_->metadata_store()->forget(cache_->run_of(second)));
  empty_pool();
  EXPECT_EQ(found(third), 144u);
  EXPECT_EQ(serve(second), 144u);
  EXPECT_EQ(found(third), 240u) << "what is computed now has taken its place";

  Sequence sequence(*pool_);
  const Tokens other = followed_by(first, 96, 5);
  Retrieval retrieval = cache_->retrieve(asked(other), {}, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  compute(other, other.size(), sequence);
  NewRun run{.tokens = other, .first = 144};
  run.lossy_from = retrieval.lossy_from();
  cache_->store(std::move(run), sequence);
  drain();
  EXPECT_FALSE(cache_->metadata_store()->inherited(cache_->run_of(other)));
}

TEST_F(BehindLossyTest, WhoeverFixesOneFormForAllTakesItAsItIs) {
  open_with("fixed:int8");
  const Tokens first = tokens_of(1, 144), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  store(first);
  drain();
  EXPECT_EQ(serve(second), 144u);
  empty_pool();
  EXPECT_EQ(found(third), 240u);
  EXPECT_EQ(found(third, exact(true)), 0u);
}

// Heads keep rows of their own of the document, and agree again behind it.
TEST_F(BehindLossyTest, ItIsStoredBehindRowsThatHeadsKeptOfTheirOwn) {
  const Tokens first = document("knorm+int8", 0.5);
  const Tokens second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  EXPECT_EQ(serve(second), 144u);
  empty_pool();
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(third), sequence), 240u);
  EXPECT_EQ(sequence.table(0, 0).tokens, 72u + 96u);
  EXPECT_TRUE(sequence.check_integrity());
}

TEST_F(BehindLossyTest, ThePoolServesTheFrontOfWhatItHolds) {
  const Tokens first = document(), second = followed_by(first, 96, 2);
  serve(second);
  empty_pool();
  EXPECT_EQ(found(followed_by(second, 32, 3)), 240u);
  const std::uint32_t free = pool_->pages_free();
  Tokens other = second;
  other[200] += 1;
  for (const auto& [tokens, length] : {std::pair(second, 240u), std::pair(other, 192u), std::pair(first, 144u)}) {
    Sequence sequence(*pool_);
    const Retrieval retrieval = of_the_pool(tokens, sequence, length, free);
    std::uint32_t tokens_of_sources = 0;
    for (const SourceUsed& source : retrieval.sources()) tokens_of_sources += source.tokens;
    EXPECT_EQ(tokens_of_sources, length);
  }
  RequestPolicy named;
  named.method = Method::parse("int8").value();
  {
    Sequence sequence(*pool_);
    const Retrieval retrieval = cache_->retrieve(asked(second), named, sequence);
    EXPECT_TRUE(retrieval.loaded()) << "the document, of the pool";
    EXPECT_EQ(retrieval.tokens(), 144u);
  }
  Sequence sequence(*pool_);
  const Retrieval shorter = cache_->retrieve(std::span(first).first(130), {}, sequence);
  EXPECT_EQ(shorter.tokens(), 0u) << "what came lossily is shared whole";
}

// Two chats share a document and the first tokens of a turn. The pool has the one; of the other a turn is at rest that
// begins before that ends.
TEST_F(BehindLossyTest, AFrontOfThePoolKeepsNobodyFromLoadingTheRest) {
  const Tokens first = document(), long_turn = followed_by(first, 160, 2);
  serve(long_turn);
  Tokens other(long_turn.begin(), long_turn.begin() + 176);
  other = followed_by(other, 64, 3);
  empty_pool();
  serve(other);
  empty_pool();
  EXPECT_EQ(found(followed_by(other, 16, 4)), 240u) << "now in the pool";
  Sequence sequence(*pool_);
  const Retrieval retrieval = cache_->retrieve(asked(followed_by(long_turn, 16, 4)), {}, sequence);
  EXPECT_EQ(retrieval.tokens(), 304u);
}

TEST_F(BehindLossyTest, ThePoolKeepsWhatWasComputedThere) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 64, 3);
  EXPECT_EQ(serve_and_keep(second), 144u);
  EXPECT_EQ(serve_and_keep(third), 240u);
  const std::uint32_t free = pool_->pages_free();
  Tokens other = third;
  other[200] += 1;
  for (const auto& [tokens, length] : {std::pair(third, 304u), std::pair(other, 192u), std::pair(first, 144u)}) {
    Sequence sequence(*pool_);
    const Retrieval retrieval = of_the_pool(tokens, sequence, length, free);
    ASSERT_EQ(retrieval.sources().size(), length == 144 ? 1u : 2u);
    const SourceUsed &loaded = retrieval.sources().front(), &last = retrieval.sources().back();
    EXPECT_EQ(last.where, kPoolSource);
    EXPECT_EQ(last.behind_lossy, length > 144);
    ASSERT_TRUE(last.quality && loaded.quality);
    EXPECT_EQ(*last.quality, *loaded.quality) << "what it was computed behind";
    EXPECT_LT(*last.quality, 1);
    EXPECT_EQ(loaded.tokens + (length > 144 ? last.tokens : 0), length);
  }
}

TEST_F(BehindLossyTest, WhatThePoolKeepsMeetsNobodyElse) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  serve_and_keep(second);
  EXPECT_EQ(found(third, exact(true)), 0u);
  RequestPolicy named, salted, demanding;
  named.method = Method::parse("int8").value();
  EXPECT_EQ(found(third, named), 144u);
  salted.salt = salt_of("ann", "");
  EXPECT_EQ(found(third, salted), 0u);
  cache_->metadata_store()->inherit(cache_->run_of(second), 0.5);  // a worse one, at rest
  demanding.quality_min = 0.93;
  EXPECT_EQ(found(third, demanding), 240u);
  ASSERT_TRUE(cache_->metadata_store()->record_quality({.key = cache_->run_of(first),
                                                        .method = Method::parse("int8").value(),
                                                        .keep = 1,
                                                        .quality = 0.9,
                                                        .kl = 0,
                                                        .questions = 99}));
  Sequence sequence(*pool_);
  const Retrieval pooled = cache_->retrieve(asked(third), demanding, sequence, {.engine = {}, .pool_only = true});
  EXPECT_EQ(pooled.tokens(), 0u) << "it is worth what the document is known to be now";
  demanding.quality_min = 0.85;
  EXPECT_EQ(found(third, demanding), 240u);
}

// Of a document that is everybody's, the pool has it exactly, and a turn of one tenant's behind a lossy copy.
TEST_F(BehindLossyTest, WhatATenantKeepsHidesNothingExactThatIsWorthMore) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  cache_->publish(first);
  RequestPolicy policy;
  policy.salt = salt_of("ann", "");
  EXPECT_EQ(serve_and_keep(second, policy), 144u);
  Sequence computed(*pool_);
  compute(first, first.size(), computed);
  cache_->insert_prefix(first, computed);
  Sequence lossy(*pool_);
  EXPECT_EQ(fetch(asked(third), lossy, policy), 240u) << "computing takes long here";
  cache_->note_prefill(100, 0, 1e-6);
  Sequence exact(*pool_);
  const Retrieval retrieval = cache_->retrieve(asked(third), policy, exact);
  EXPECT_EQ(retrieval.tokens(), 144u) << "now it takes no time";
  EXPECT_FALSE(retrieval.lossy());
}

// Nor has the pool to be looked at for what no tier has.
TEST_F(BehindLossyTest, TurnsThatAreNowhereAtRestPushNoOthersOut) {
  const Tokens first = document();
  cache_->publish(first);
  const auto chains_looked_at = [&] {
    const std::uint64_t before = cache_->stats().chains_looked_at;
    cache_->place_again(cache_->run_of(first));
    drain();
    for (int i = 0; i < 10; ++i) cache_->work(executor_);
    return cache_->stats().chains_looked_at - before;
  };
  EXPECT_EQ(found(followed_by(first, 16, 2)), 144u);
  EXPECT_EQ(chains_looked_at(), 1u) << "the document";
  for (int tenant = 0; tenant < 5; ++tenant) {
    RequestPolicy policy;
    policy.salt = salt_of(std::to_string(tenant), "");
    EXPECT_EQ(serve_and_keep(followed_by(first, 96, 2), policy), 144u);
    EXPECT_EQ(found(followed_by(first, 112, 2), policy), 240u);
  }
  EXPECT_EQ(chains_looked_at(), 1u);
}

TEST_F(BehindLossyTest, WhatThePoolKeepsIsEvictedLikeAllElse) {
  const Tokens first = document(), second = followed_by(first, 96, 2), third = followed_by(second, 32, 3);
  begin_to_store(second, {}, true);
  const std::uint32_t total = pool_->blocks_total(), waiting = cache_->blocks_waiting_to_be_stored();
  EXPECT_EQ(waiting, 6u) << "the turn's";
  EXPECT_EQ(pool_->blocks_free() + cache_->blocks_evictable() + waiting, total);
  EXPECT_EQ(cache_->blocks_free_without_storing(), total);
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_free() + cache_->blocks_evictable())) << "the document's";
  EXPECT_EQ(pool_->blocks_free() + waiting, total);
  EXPECT_FALSE(cache_->evict_until_free(total));
  drain();
  EXPECT_EQ(pool_->blocks_free() + cache_->blocks_evictable(), total);
  {
    Sequence held(*pool_);
    EXPECT_EQ(fetch(asked(third), held), 240u);
    EXPECT_EQ(cache_->pool_blocks_in_use(asked(third), {}), 15u);
    EXPECT_FALSE(cache_->evict_until_free(total));
  }
  EXPECT_TRUE(cache_->evict_until_free(total));
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(third), {}, sequence);
  EXPECT_FALSE(retrieval.loaded()) << "from the disk again";
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(retrieval.tokens(), 240u);
}

TEST_F(BehindLossyTest, AFormThatCannotBeRankedThereIsNotStored) {
  open_with("fixed:snapkv+int8@0.5");
  const Tokens first = tokens_of(1, 144), second = followed_by(first, 96, 2);
  Sequence sequence(*pool_);
  compute(first, 144, sequence);
  sequence.mark_lossy();
  compute(second, second.size(), sequence);
  NewRun run{.tokens = second, .first = 144};
  run.lossy_from = 144;
  cache_->store(std::move(run), sequence);
  EXPECT_FALSE(cache_->stores_any()) << "its pages are nobody's";
}

}  // namespace
}  // namespace shale
