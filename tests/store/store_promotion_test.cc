// What rises to a faster tier, beside what is read meanwhile.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "store/placed_store.h"

namespace shale::testing {
namespace {

// Two tiers with room for one extent each, of which the lower is slow, and no time but a test's own.
class StorePromotionTest : public StorePlacementTest {
 protected:
  static constexpr std::uint64_t kRoomForOne = 250 << 10;

  void SetUp() override {
    StoreTier slow = memory_tier(time_, kRoomForOne);
    slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("20MB/s,5ms").value(), time_);
    StoreOptions options = small_options();
    options.threads = 0;
    store_ = Store::open(options, tiers_of(memory_tier(time_, kRoomForOne), std::move(slow)), time_).value();
    save_chains(*store_, 2);
    ASSERT_EQ(found(*store_, 2), 2 * kBlocks);
  }
  std::uint32_t tier_of(int chain) const { return store_->lookup(chain_number(chain)).tier; }
  int below() const { return tier_of(0) == 1 ? 0 : 1; }
  bool work() { return store_->work(executor_, 0); }

  VirtualClock time_;
  InlineExecutor executor_;
  std::unique_ptr<Store> store_;
};

// Each waits for the other's room, and both can be read all the while.
TEST_F(StorePromotionTest, WhatChangesPlacesIsNeverNowhere) {
  for (int round = 0; round < 4; ++round) {
    const int rising = below();
    for (int use = 0; use < 10 << round; ++use) store_->touch(chain_number(rising));
    const auto changed = [&] { return tier_of(rising) == 0 && tier_of(1 - rising) == 1; };
    for (int works = 0; works < 100'000 && !changed(); ++works) {
      ASSERT_EQ(found(*store_, 2), 2 * kBlocks) << "round " << round;
      if (!work()) time_.advance(1e-3);
    }
    ASSERT_TRUE(changed()) << "round " << round;
    EXPECT_EQ(load_all(*store_, chain_number(0)) + load_all(*store_, chain_number(1)), 2 * kBlocks);
  }
  ASSERT_TRUE(store_->flush());
  EXPECT_LE(store_->stats().tiers[0].bytes, kRoomForOne);
  EXPECT_EQ(store_->stats().dropped_extents, 0u);
  expect_sound(*store_);
}

// It would compete with them for the tier that it comes from.
TEST_F(StorePromotionTest, WhatRisesWaitsForLoads) {
  const int rising = below();
  Kv kv(kBlocks);
  const auto load = store_->load(chain_number(rising), kv.view()).value();
  store_->remove(chain_number(1 - rising));
  for (const double until_s = time_.now_s() + 0.15; time_.now_s() < until_s;) {  // ten times as long as it takes
    if (!work()) time_.advance(1e-3);
  }
  EXPECT_EQ(tier_of(rising), 1u) << "there is room above, and a load in flight";
  ASSERT_TRUE(load->wait());
  for (int works = 0; works < 100'000 && tier_of(rising) != 0; ++works) {
    if (!work()) time_.advance(1e-3);
  }
  EXPECT_EQ(tier_of(rising), 0u);
  expect_sound(*store_);
}

}  // namespace
}  // namespace shale::testing
