// What a tenant may have at rest.
#include <gmock/gmock.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "store/placed_store.h"

namespace shale::testing {
namespace {

constexpr std::uint64_t kQuota = kRoomForThree;

class StoreQuotaTest : public StorePlacementTest {
 protected:
  static void bound(Store& store, const std::map<std::string, std::uint64_t>& bytes) {
    for (const auto& [tenant, bytes_max] : bytes) store.set_quota(tenant, bytes_max);
  }
  static StoreTenantStats of(const Store& store, const std::string& tenant) {
    for (const StoreTenantStats& each : store.stats().tenants) {
      if (each.tenant == tenant) return each;
    }
    return {};
  }
  static Status save(Store& store, const std::string& tenant, int chain, double recompute_s = 0) {
    StoreHints hints;
    hints.tenant = tenant;
    hints.recompute_s = recompute_s;
    return save_all(store, chain_number(chain), hints);
  }
  static std::uint32_t blocks(Store& store, const std::string& tenant, int chain) {
    return store.lookup(chain_number(chain), kAny, tenant).blocks;
  }
};

TEST_F(StoreQuotaTest, ItsOwnLeastValuableIsDropped) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  bound(*store, {{"ann", kQuota}});
  ASSERT_TRUE(save(*store, "bob", 9));
  for (int c = 0; c < 3; ++c) ASSERT_TRUE(save(*store, "ann", c));
  for (int use = 0; use < 5; ++use) {
    store->touch(chain_number(0), "ann");
    store->touch(chain_number(2), "ann");
  }
  ASSERT_TRUE(save(*store, "ann", 3));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(blocks(*store, "ann", 0), kBlocks);
  EXPECT_EQ(blocks(*store, "ann", 1), 0u) << "it was used least";
  EXPECT_EQ(blocks(*store, "ann", 2), kBlocks);
  EXPECT_EQ(blocks(*store, "ann", 3), kBlocks);
  EXPECT_EQ(blocks(*store, "bob", 9), kBlocks);
  EXPECT_EQ(of(*store, "ann").dropped_for_room, 1u);
  EXPECT_EQ(of(*store, "ann").bytes_max, kQuota);
  EXPECT_LE(of(*store, "ann").bytes, kQuota);
  EXPECT_EQ(of(*store, "bob").bytes_max, 0u);
  expect_sound(*store);
}

TEST_F(StoreQuotaTest, WhatIsWorthLessIsNotStored) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  bound(*store, {{"ann", kQuota}});
  for (int c = 0; c < 3; ++c) ASSERT_TRUE(save(*store, "ann", c, 10));
  const Status saved = save(*store, "ann", 3, 0.001);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kFull);
  EXPECT_THAT(saved.error().message, ::testing::HasSubstr("tenant ann"));
  for (int c = 0; c < 3; ++c) EXPECT_EQ(blocks(*store, "ann", c), kBlocks);
  EXPECT_EQ(of(*store, "ann").refused, 1u);
  EXPECT_EQ(of(*store, "ann").dropped_for_room, 0u);
  expect_sound(*store);
}

// Extents of a run are of no use without those before them, whatever computing each alone takes.
TEST_F(StoreQuotaTest, OfALongContextTheEndGoesFirst) {
  StoreOptions options = small_options();
  options.placement.recompute_s = [](std::uint32_t tokens, std::uint32_t first) { return 1e-6 * tokens * (1 + first); };
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  const auto context = chain_of(1, 3 * kBlocks);
  StoreHints hints;
  hints.tenant = "ann";
  ASSERT_TRUE(save_all(*store, context, hints));
  ASSERT_TRUE(store->flush());
  bound(*store, {{"ann", of(*store, "ann").bytes}});
  for (std::uint32_t left = 2; left > 0; --left) {
    ASSERT_TRUE(save(*store, "ann", static_cast<int>(10 + left), 10));
    ASSERT_TRUE(store->flush());
    EXPECT_EQ(store->lookup(context, {}, "ann").blocks, left * kBlocks);
    EXPECT_EQ(blocks(*store, "ann", static_cast<int>(10 + left)), kBlocks);
  }
  expect_sound(*store);
}

TEST_F(StoreQuotaTest, WhatOfALongContextFitsIsKept) {
  StoreOptions options = small_options();
  options.placement.recompute_s = [](std::uint32_t tokens, std::uint32_t first) { return 1e-6 * tokens * (1 + first); };
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  bound(*store, {{"ann", kQuota}});
  const auto context = chain_of(1, 5 * kBlocks);
  StoreHints hints;
  hints.tenant = "ann";
  EXPECT_FALSE(save_all(*store, context, hints));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->lookup(context, {}, "ann").blocks, 3 * kBlocks);
  EXPECT_EQ(of(*store, "ann").refused, 2u);
  EXPECT_EQ(of(*store, "ann").dropped_for_room, 0u);
  expect_sound(*store);
}

TEST_F(StoreQuotaTest, ABoundHoldsFromWhenItIsSaidUntilItIsTakenBack) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  for (int c = 0; c < 4; ++c) ASSERT_TRUE(save(*store, "ann", c));
  for (int c = 1; c < 4; ++c) store->touch(chain_number(c), "ann");
  bound(*store, {{"ann", kQuota}});
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(blocks(*store, "ann", 0), 0u);
  for (int c = 1; c < 4; ++c) EXPECT_EQ(blocks(*store, "ann", c), kBlocks);
  bound(*store, {{"ann", 0}});
  ASSERT_TRUE(save(*store, "ann", 0));
  for (int c = 0; c < 4; ++c) EXPECT_EQ(blocks(*store, "ann", c), kBlocks);
  expect_sound(*store);
}

TEST_F(StoreQuotaTest, WhatIsPinnedOrTooLargeMakesNoRoom) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  bound(*store, {{"ann", kQuota}, {"eve", 1000}});
  for (int c = 0; c < 3; ++c) {
    ASSERT_TRUE(save(*store, "ann", c));
    store->pin(chain_number(c), "ann");
  }
  EXPECT_FALSE(save(*store, "ann", 3));
  EXPECT_FALSE(save(*store, "eve", 0));
  EXPECT_EQ(of(*store, "eve").bytes, 0u);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(blocks(*store, "ann", c), kBlocks);
  expect_sound(*store);
}

TEST_F(StoreQuotaTest, AnEarlierProcessesExtentsCountAndASmallerBoundIsKept) {
  const auto disk = [&] { return tiers_of(disk_tier(folder_.path() / "disk", clock_)); };
  {
    const auto store = open(disk());
    bound(*store, {{"ann", kQuota}});
    for (int c = 0; c < 3; ++c) ASSERT_TRUE(save(*store, "ann", c));
    ASSERT_TRUE(save(*store, "bob", 0));
    ASSERT_TRUE(store->flush());
  }
  const auto store = open(disk());
  bound(*store, {{"ann", kQuota / 2}});
  ASSERT_TRUE(store->flush());
  EXPECT_LE(of(*store, "ann").bytes, kQuota / 2);
  EXPECT_GT(of(*store, "ann").bytes, 0u);
  EXPECT_EQ(blocks(*store, "bob", 0), kBlocks);
  expect_sound(*store);
}

// Whatever two tenants do: at rest neither has more than it may, and where all that they may have fits the lowest tier,
// nobody loses anything by what the other does.
TEST_F(StoreQuotaTest, NobodyPassesItsBoundOrMakesAnotherGiveUpAnything) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const auto store = open(
        tiers_of(memory_tier(clock_, 500 << 10), disk_tier(folder_.path() / std::to_string(seed), clock_, 4 * kQuota)));
    bound(*store, {{"noisy", kQuota}, {"quiet", kQuota}});
    ASSERT_TRUE(save(*store, "quiet", 0));
    std::mt19937 random(seed);
    for (int i = 0; i < 30; ++i) {
      const int chain = std::uniform_int_distribution(0, 11)(random);
      if (random() % 2) {
        static_cast<void>(save(*store, "noisy", chain, 0.01 * static_cast<double>(random() % 100 + 1)));
      } else {
        store->touch(chain_number(chain), "noisy");
      }
      if (i % 5 == 0) {
        ASSERT_TRUE(store->flush());
        EXPECT_LE(of(*store, "noisy").bytes, kQuota);
        EXPECT_LE(of(*store, "quiet").bytes, kQuota);
      }
    }
    EXPECT_EQ(blocks(*store, "quiet", 0), kBlocks);
    EXPECT_GT(of(*store, "noisy").dropped_for_room + of(*store, "noisy").refused, 0u);
    EXPECT_EQ(of(*store, "quiet").dropped_for_room, 0u);
    expect_sound(*store);
  }
}

}  // namespace
}  // namespace shale::testing
