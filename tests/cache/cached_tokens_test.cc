// Where cached tokens came from is told by the names of tiers.
#include "cache/cached_tokens.h"

#include "support/cache_fixture.h"

namespace shale::testing {
namespace {

TEST_F(CacheTest, TiersOfOneNameAreRefused) {
  std::vector<StoreTier> tiers(2);
  for (StoreTier& tier : tiers) tier.tier = make_memory_tier(1 << 20, clock_);
  const auto cache = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(cache.error().message.find("'memory'"), std::string::npos) << cache.error().message;
}

TEST_F(CacheTest, CountsTokensByTheTiersThatThereAre) {
  open();
  const Tokens tokens = tokens_of(3, 100);
  store(tokens);
  drain();
  open();  // nothing of the pool or of memory is left
  Sequence sequence(*pool_);
  ASSERT_EQ(cache_->retrieve(asked(tokens), {}, sequence).tokens(), 96u);
  const CachedTokens& cached = cache_->stats().cached;
  ASSERT_EQ(cached.sources().size(), 3u);
  EXPECT_EQ(cached.sources()[0].name, kPoolSource);
  EXPECT_EQ(cached.sources()[1].name, "memory");
  EXPECT_EQ(cached.from("disk"), 96u);
  EXPECT_EQ(cached.total(), 96u);
  EXPECT_EQ(cached.from("remote"), 0u);
}

TEST(CachedTokensTest, AddsByNameInTheOrderOfTheFirst) {
  CachedTokens total, one;
  total.add("disk", 5);
  one.add("remote", 1);
  one.add("disk", 2);
  total.add(one);
  EXPECT_EQ(total.from("disk"), 7u);
  EXPECT_EQ(total.from("remote"), 1u);
  EXPECT_EQ(total.sources()[0].name, "disk");
  EXPECT_EQ(total.total(), 8u);
}

}  // namespace
}  // namespace shale::testing
