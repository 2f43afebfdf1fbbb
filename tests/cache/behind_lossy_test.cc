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
  std::uint32_t serve(const Tokens& tokens, const RequestPolicy& policy = {}) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), policy, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    const std::uint32_t found = retrieval.tokens();
    compute(tokens, tokens.size(), sequence);
    NewRun run{.tokens = tokens, .first = found};
    run.lossy_from = retrieval.lossy_from();
    run.inherited = expected_quality(retrieval.sources());
    cache_->store(std::move(run), sequence);
    drain();
    EXPECT_TRUE(cache_->check_integrity());
    return found;
  }

  std::uint32_t found(const Tokens& tokens, const RequestPolicy& policy = {}) {
    Sequence sequence(*pool_);
    return fetch(asked(tokens), sequence, policy);
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
    const Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
    EXPECT_TRUE(retrieval.loaded()) << "of the pool";
    EXPECT_EQ(retrieval.tokens(), length);
    EXPECT_EQ(retrieval.lossy_from(), 144u);
    EXPECT_EQ(pool_->pages_free(), free) << "every page is shared";
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
