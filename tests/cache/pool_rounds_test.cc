// How often the cache looks at what the pool still holds of the chains that it knows.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"

namespace shale {
namespace {

constexpr std::uint64_t kChains = 20;

class PoolRoundsTest : public testing::CacheTest {
 protected:
  PoolRoundsTest() {
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_memory_tier(1 << 20, time_);
    cache_ = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, time_).value();
    for (int i = 0; i < static_cast<int>(kChains); ++i) {
      Sequence sequence(*pool_);
      compute(tokens_of(i, 256), 256, sequence);
      cache_->insert_prefix(tokens_of(i, 256), sequence);
    }
  }
  ~PoolRoundsTest() override { cache_.reset(); }  // before its clock

  void evict_one() { ASSERT_TRUE(cache_->evict_until_free(pool_->blocks_free() + 1)); }
  std::uint64_t looks() const { return cache_->stats().chains_looked_at; }

  VirtualClock time_;
};

TEST_F(PoolRoundsTest, ThePoolIsLookedAtOnceForWhatItEvicted) {
  for (std::uint64_t round = 1; round <= 2; ++round) {
    evict_one();
    for (std::uint64_t i = 0; i < kChains; ++i) cache_->work(executor_);
    EXPECT_EQ(looks(), round * kChains);
    time_.advance(1);
  }
}

// As a full one does.
TEST_F(PoolRoundsTest, APoolThatEvictsAllTheTimeIsLookedAtOnceASecond) {
  for (int i = 0; i < 30; ++i) {
    evict_one();
    cache_->work(executor_);
    time_.advance(0.125);
  }
  const std::uint64_t before = looks();
  EXPECT_LE(before, 4 * kChains);
  time_.advance(1);
  cache_->work(executor_);
  EXPECT_GT(looks(), before) << "what was evicted last is not forgotten";
}

}  // namespace
}  // namespace shale
