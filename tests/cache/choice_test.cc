// What of a prompt is loaded and what computed, and what that counts as.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

// Over a tier that takes a tenth of a second to answer, as computing a hundred tokens does.
class ChoiceTest : public CacheTest {
 protected:
  ChoiceTest() {
    std::vector<StoreTier> tiers;
    tiers.push_back(disk_tier());
    tiers[0].tier = make_throttled_tier(std::move(tiers[0].tier), parse_throttle("1GB/s,100ms").value(), clock_);
    cache_ = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers),
                         MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value(), clock_)
                 .value();
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 0.1);
  }
};

// Two documents that begin alike: what they share takes longer to load than to compute, and the rest does not.
TEST_F(ChoiceTest, AShortRunThatIsDearIsLoadedWhereALongOneFollows) {
  const Tokens first = tokens_of(1, 160);
  Tokens second = tokens_of(2, 1600);
  std::copy_n(first.begin(), 32, second.begin());
  store(first);
  drain();
  store(second, 32);
  drain();
  ASSERT_EQ(stored(second).size(), 1u);
  EXPECT_EQ(stored(second)[0].first_block, 2u);
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(second), sequence), 1600u);
  expect_exact(second, sequence);
  Tokens other = tokens_of(3, 200);
  std::copy_n(first.begin(), 32, other.begin());
  Sequence alone(*pool_);
  EXPECT_EQ(fetch(asked(other), alone), 0u) << "it is computed sooner";
}

TEST_F(ChoiceTest, AFormThatARequestNamesIsLoadedOnlyWhereThatIsSoonerThanComputing) {
  const Method method{.scorer = "knorm", .quantizer = "none"};
  RequestPolicy named;
  named.method = method;
  named.keep = 0.5;
  for (const std::size_t count : {48, 480}) {
    const Tokens tokens = tokens_of(static_cast<int>(count), count);
    {
      Sequence computed(*pool_);
      compute(tokens, count, computed);
      cache_->insert_prefix(tokens, computed);
    }
    store(tokens, 0, method, 0.5);
    drain();
    Sequence sequence(*pool_);
    const Retrieval retrieval = cache_->retrieve(asked(tokens), named, sequence);
    ASSERT_EQ(retrieval.sources().size(), 1u);
    EXPECT_EQ(retrieval.sources()[0].where, count == 48 ? "pool" : "disk");
    EXPECT_EQ(retrieval.tokens(), count);
    EXPECT_EQ(retrieval.tokens_loaded(), count == 48 ? 0u : count);
  }
}

TEST_F(ChoiceTest, WhoWouldWaitToBeComputedLoads) {
  const Tokens tokens = tokens_of(1, 48);
  store(tokens);
  drain();
  const std::uint64_t lookups = cache_->store().stats().tenants[0].lookups;
  EXPECT_FALSE(cache_->would_load(asked(tokens), {}, {})) << "it is computed sooner";
  EXPECT_TRUE(cache_->would_load(asked(tokens), {}, {.engine = {.compute_s = 1}})) << "others are computed first";
  EXPECT_TRUE(cache_->would_load(asked(tokens), {}, {.engine = {.slowdown = 10}})) << "others decode beside";
  EXPECT_FALSE(cache_->would_load(asked(tokens), {}, {.engine = {.compute_s = 1}, .pool_only = true}));
  EXPECT_FALSE(cache_->would_load(asked(tokens), {}, {.engine = {.slowdown = 2, .others = true}}));
  EXPECT_FALSE(cache_->would_load(asked(tokens), {}, {.engine = {.slowdown = 3}})) << "so much takes loading";
  EXPECT_TRUE(cache_->would_load(asked(tokens), {}, {.engine = {.slowdown = 3, .others = true}}))
      << "beside others computing must be a good deal sooner";
  EXPECT_EQ(cache_->store().stats().tenants[0].lookups, lookups) << "nobody looked it up";
  Sequence sequence(*pool_);
  auto retrieval = cache_->retrieve(asked(tokens), {}, sequence, {.engine = {.slowdown = 10}});
  EXPECT_EQ(retrieval.tokens_loaded(), 48u);
}

TEST_F(CacheTest, WhatDoesNotCountAsAUseLeavesItsFrequency) {
  open();
  const Tokens tokens = tokens_of(1, 160);
  store(tokens);
  drain();
  const auto frequency = [&] { return stored(tokens)[0].frequency; };
  const double before = frequency();
  RequestPolicy policy;
  policy.counts = false;
  Sequence watched(*pool_), used(*pool_);
  EXPECT_EQ(fetch(asked(tokens), watched, policy), 160u);
  EXPECT_LE(frequency(), before);
  const CacheStats& stats = cache_->stats();
  EXPECT_EQ(stats.lookups + stats.hits, 0u);
  EXPECT_EQ(fetch(asked(tokens), used), 160u);
  EXPECT_NEAR(frequency(), before + 1, 0.01);
  EXPECT_EQ(stats.lookups, 1u);
  EXPECT_EQ(stats.hits, 1u);
}

}  // namespace
}  // namespace shale
