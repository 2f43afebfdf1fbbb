// What is removed is gone for good, also where a copy of it is on its way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

// Nothing happens but in work().
class StoreRemovedTest : public StoreTest {
 protected:
  void open_over(StoreTier memory, StoreTier below) {
    StoreOptions options = small_options();
    options.threads = 0;
    store_ = Store::open(options, tiers_of(std::move(memory), std::move(below)), virtual_clock_).value();
  }
  void expect_gone(std::span<const BlockKey> keys) {
    ASSERT_TRUE(store_->flush());
    EXPECT_EQ(store_->lookup(keys).blocks, 0u);
    EXPECT_TRUE(store_->inspect(keys).empty());
    expect_sound(*store_);
  }

  const VirtualClock virtual_clock_;
  InlineExecutor executor_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreRemovedTest, WhatIsRemovedWhileItIsCopiedStaysRemoved) {
  const auto disk = [&] { return disk_tier(folder_.path(), virtual_clock_); };
  open_over(memory_tier(virtual_clock_), disk());
  const auto keys = chain_of(1, 64);  // one extent
  const Kv kv(keys);
  const auto save = store_->save(keys, kv.readable()).value();
  while (!save->done()) store_->work(executor_, 0);
  ASSERT_GT(store_->stats().bytes_left, 0u) << "the copy is still to be written";
  ASSERT_EQ(store_->stats().tiers[1].extents, 0u);
  EXPECT_EQ(store_->remove(keys), 64u);
  expect_gone(keys);
  EXPECT_EQ(store_->stats().tiers[1].bytes, 0u);
  for (const bool manifests : {false, true}) EXPECT_TRUE(blob_files(folder_.path(), manifests).empty());
  store_.reset();
  open_over(memory_tier(virtual_clock_), disk());
  EXPECT_EQ(store_->lookup(keys).blocks, 0u);
}

TEST_F(StoreRemovedTest, WhatIsRemovedWhileItMovesStaysRemoved) {
  StoreTier slow = memory_tier(virtual_clock_);
  slow.tier = make_throttled_tier(std::move(slow.tier), parse_throttle("1MB/s,1ms").value(), virtual_clock_);
  const Tier& below = *slow.tier;
  open_over(memory_tier(virtual_clock_, 250 << 10), std::move(slow));
  const auto cheap = chain_of(1, 64), dear = chain_of(1000, 64);
  ASSERT_TRUE(save_all(*store_, cheap, {.recompute_s = 1}));
  ASSERT_TRUE(store_->flush());
  ASSERT_EQ(store_->lookup(cheap).tier, 0u);
  const Kv kv(dear);
  const auto save = store_->save(dear, kv.readable(), {.recompute_s = 1000}).value();
  for (int i = 0; i < 1000 && below.writes_queued().operations == 0; ++i) store_->work(executor_, 0);
  ASSERT_GT(below.writes_queued().operations, 0u);
  ASSERT_EQ(store_->stats().tiers[1].extents, 0u) << "it is still being written, since the clock stands";
  EXPECT_EQ(store_->remove(cheap), 64u);
  expect_gone(cheap);
  EXPECT_EQ(below.used_bytes(), 0u);
  EXPECT_EQ(load_all(*store_, dear), 64u);
}

// Nothing happens but in work(), while the clock stands.
class StoreRefusalTest : public StoreTest {
 protected:
  static constexpr int kChains = 100;

  StoreRefusalTest() {
    StoreTier shared = {.tier = make_memory_tier(kUnlimited, virtual_clock_), .shared = true};
    Faults faults{.fail_remove = [this](std::uint64_t) { return ++tries_, refuses_; }};
    shared.tier = std::make_unique<FaultyTier>(std::move(shared.tier), std::move(faults), virtual_clock_);
    tier_ = shared.tier.get();
    StoreOptions options = small_options();
    options.threads = 0;
    store_ = Store::open(options, tiers_of(memory_tier(virtual_clock_), std::move(shared)), virtual_clock_).value();
    for (int i = 0; i < kChains; ++i) EXPECT_TRUE(save_all(*store_, chain(i)));
    EXPECT_TRUE(store_->flush());
    store_->take_events(2 * kChains);
    for (int i = 0; i < kChains; ++i) EXPECT_EQ(store_->remove(chain(i)), 16u);
  }
  static std::vector<BlockKey> chain(int number) { return chain_of(1000 * (number + 1), 16); }

  VirtualClock virtual_clock_;
  InlineExecutor executor_;
  bool refuses_ = true;
  int tries_ = 0;
  const Tier* tier_ = nullptr;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreRefusalTest, ATierThatRefusesRemovalsIsAskedNowAndThen) {
  for (int second = 0; second < 60; ++second) {
    store_->work(executor_, 1);
    virtual_clock_.advance(1);
  }
  EXPECT_GE(tries_, 3);
  EXPECT_LE(tries_, 5) << "not each of them every few seconds";
  EXPECT_THAT(store_->stats().tiers[1].unremoved, ::testing::HasSubstr("injected")) << "why";
  EXPECT_EQ(store_->lookup(chain(0)).blocks, 0u);
  const auto events = store_->take_events(2 * kChains);
  EXPECT_EQ(std::ranges::count(events, StoreEvent::Kind::kRemoved, &StoreEvent::kind), kChains) << "all are told of";
}

TEST_F(StoreRefusalTest, OnceItRemovesAgainLookUpsComeBetween) {
  store_->work(executor_, 1);
  refuses_ = false;
  virtual_clock_.advance(6);
  tries_ = 0;
  store_->work(executor_, 0);
  const auto other = chain(kChains);
  ASSERT_TRUE(store_->lookup(other).pending);
  while (store_->lookup(other).pending) store_->work(executor_, 0);
  EXPECT_LE(tries_, 10) << "blobs of a few extents";
  store_->work(executor_, 1);
  EXPECT_TRUE(tier_->list()->empty());
  EXPECT_EQ(tier_->used_bytes(), 0u);
  EXPECT_TRUE(store_->stats().tiers[1].unremoved.empty());
}

}  // namespace
}  // namespace shale::testing
