// Several lossy forms of one context, in the pool and at rest: each serves those who name it.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

// Forms are at keep 0.5.
class LossyFormsTest : public CacheTest {
 protected:
  static RequestPolicy naming(const Method& method) { return {.method = method, .keep = 0.5}; }
  // What a request for all of these tokens is served.
  SourceUsed source(const Tokens& tokens, const RequestPolicy& policy) {
    Sequence sequence(*pool_);
    Retrieval retrieval = cache_->retrieve(asked(tokens), policy, sequence);
    EXPECT_TRUE(retrieval.ensure_all(executor_));
    EXPECT_EQ(retrieval.sources().size(), 1u);
    return retrieval.sources().front();
  }
  // As the engine leaves one that it has made.
  void keep_form(const Tokens& tokens, const Method& method) {
    Sequence form(*pool_);
    compute(tokens, tokens.size(), form);
    form.mark_lossy();
    NewRun run{.tokens = tokens, .method = method};
    run.keep = 0.5;
    cache_->keep_form(run, form);
  }
  void measured(const Tokens& tokens, const Method& method, double quality) {
    ASSERT_TRUE(cache_->metadata_store()->record_quality(
        {.key = cache_->run_of(tokens), .method = method, .keep = 0.5, .quality = quality, .kl = 0, .questions = 9}));
  }

  const Method kKnorm{.scorer = "knorm", .quantizer = "none"}, kCoded{.scorer = "knorm", .quantizer = "int8"};
};

TEST_F(LossyFormsTest, TheBestServesWhoNamesNone) {
  CacheOptions options;
  options.alpha = 1e-9;  // quality is worth less than any load
  open(64 << 20, kUnlimited, options);
  const Tokens tokens = tokens_of(1, 144);
  keep_form(tokens, kKnorm);
  measured(tokens, kKnorm, 0.4);
  store(tokens, 0, kCoded, 0.5);
  drain();
  measured(tokens, kCoded, 0.9);
  EXPECT_EQ(source(tokens, naming(kKnorm)).where, "pool");
  EXPECT_EQ(source(tokens, naming(kCoded)).where, "memory");
  EXPECT_EQ(source(tokens, {}).where, "pool");
  EXPECT_EQ(source(tokens, {}).method, kCoded);
  EXPECT_EQ(source(tokens, naming(kKnorm)).where, "pool");
}

TEST_F(LossyFormsTest, TheBestIsTheOneThatIsKnownToBeBestNow) {
  CacheOptions options;
  options.quality_floor = 0;
  open(64 << 20, kUnlimited, options);
  const Tokens tokens = tokens_of(1, 144);
  measured(tokens, kCoded, 0.5);
  keep_form(tokens, kCoded);
  keep_form(tokens, kKnorm);
  measured(tokens, kKnorm, 0.99);
  EXPECT_EQ(source(tokens, {}).method, kKnorm);
}

TEST_F(LossyFormsTest, ThatOfAShorterContextLeavesTheOneThatIsNamedToTheTier) {
  open();
  const Tokens longer = tokens_of(2, 288), shorter(longer.begin(), longer.begin() + 144);
  store(longer, 0, kCoded, 0.5);
  drain();
  keep_form(shorter, kCoded);
  EXPECT_EQ(source(shorter, naming(kCoded)).where, "pool");
  const SourceUsed whole = source(longer, naming(kCoded));
  EXPECT_EQ(whole.where, "memory");
  EXPECT_EQ(whole.tokens, 288u);
}

// Though there is room for the exact copy since another was removed, nobody would read it.
TEST_F(LossyFormsTest, ThoseMadeOfExactPagesOfThePoolLetNoExactCopyRise) {
  CacheOptions options;
  options.methods = {"knorm"};
  open(256 * kShape.token_bytes(), kUnlimited, options);
  const Tokens tokens = tokens_of(3, 144), other = tokens_of(4, 144);
  {
    Sequence computed(*pool_);
    compute(tokens, 144, computed);
    cache_->insert_prefix(tokens, computed);
  }
  keep_form(tokens, kKnorm);
  const Hash128 run = store(tokens);
  drain();
  measured(tokens, kKnorm, 1);
  const Hash128 removed = store(other);
  drain();
  cache_->store().remove_run(removed);
  drain();
  EXPECT_EQ(source(tokens, naming(kKnorm)).where, "pool");
  measured(tokens, kKnorm, 0.4);
  cache_->store().place_again(run);
  drain();
  for (const StoreExtent& extent : stored(tokens)) EXPECT_FALSE(extent.exact && extent.tiers[0] == 0);
}

}  // namespace
}  // namespace shale
