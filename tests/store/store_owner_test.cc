// A store whose owner does the work: nothing that the owner calls waits for a tier or a folder.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

class StoreOwnerTest : public StoreTest {
 protected:
  StoreOwnerTest() {
    options_.threads = 0;
    StoreTier disk = disk_tier(folder_.path() / "disk", clock_);
    disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), Faults{.open = &open_}, clock_);
    disk.tier->expect({.latency_s = 1e-3, .read_bytes_per_s = 1e9, .write_bytes_per_s = 1e9});
    store_ = open(tiers_of(memory_tier(clock_), std::move(disk)), options_);
  }
  ~StoreOwnerTest() override {
    open_shutter();
    store_.reset();
  }
  void open_shutter() {
    open_ = true;
    open_.notify_all();
  }

  std::atomic<bool> open_ = false;
  StoreOptions options_ = small_options();
  std::unique_ptr<Store> store_;
};

TEST_F(StoreOwnerTest, WhatATierKeepsWaitingDoesNotKeepTheOwnerWaiting) {
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store_, keys));
  InlineExecutor executor;
  const auto on_disk = [&] { return store_->lookup(keys, {.tiers_excluded = 1}).blocks == 64; };
  for (int i = 0; i < 2000 && !on_disk(); ++i) {
    store_->work(executor, 1e-3);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(on_disk());
  EXPECT_EQ(store_->remove(keys), 64u);
  for (int i = 0; i < 50; ++i) store_->work(executor, 1e-3);  // would not return if it removed by itself
  EXPECT_EQ(store_->lookup(keys).blocks, 0u);
  ASSERT_TRUE(save_all(*store_, chain_of(1000, 64))) << "others go on";
  EXPECT_EQ(load_all(*store_, chain_of(1000, 64)), 64u);
  open_shutter();
  ASSERT_TRUE(store_->flush());
  EXPECT_EQ(store_->stats().tiers[1].bytes, store_->stats().tiers[0].bytes) << "the second chain's";
}

TEST_F(StoreOwnerTest, TheOwnersWorkStoresFindsAndRemoves) {
  open_shutter();
  for (int round = 0; round < 3; ++round) {
    const auto keys = chain_of(1000 * (round + 1), 200);
    const Kv kv(keys);
    const auto save = store_->save(keys, kv.readable()).value();
    EXPECT_FALSE(save->released());
    ASSERT_TRUE(save->wait());
    ASSERT_TRUE(store_->flush());
    EXPECT_EQ(load_all(*store_, keys), 200u);
  }
  EXPECT_EQ(store_->remove(chain_of(1000, 200)), 200u);
  ASSERT_TRUE(store_->flush());
  expect_sound(*store_);
  store_.reset();
  store_ = open(tiers_of(disk_tier(folder_.path() / "disk", clock_)), options_);
  EXPECT_EQ(load_all(*store_, chain_of(2000, 200)), 200u);
  EXPECT_EQ(load_all(*store_, chain_of(1000, 200)), 0u);
}

// As the spans of one prompt are: the second begins inside what would be the first one's chunk.
TEST_F(StoreOwnerTest, SpansOfOneChainThatAreSavedAtOnceAreAllStored) {
  open_shutter();
  const auto keys = chain_of(1, 7);
  const std::span<const BlockKey> after = std::span(keys).subspan(2);
  const Kv kv(keys), rest(after);
  const auto first = store_->save(std::span(keys).first(2), kv.readable()).value();
  StoreHints hints;
  hints.first_block = 2;
  const auto second = store_->save(keys, rest.readable(), hints).value();
  EXPECT_EQ(second->shared_blocks(), 0u);
  ASSERT_TRUE(first->wait());
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(load_all(*store_, keys), 7u);
}

TEST_F(StoreOwnerTest, AFormThatIsAskedForIsStoredBesideTheExactOne) {
  open_shutter();
  const auto keys = chain_of(1, 10);
  const Kv kv(keys);
  StoreHints hints;
  hints.method = Method::parse("int8").value();
  hints.quality = 0;  // nobody measured it
  for (const bool exact_first : {true, false}) {
    const auto one = store_->save(keys, kv.readable(), exact_first ? StoreHints() : hints).value();
    const auto other = store_->save(keys, kv.readable(), exact_first ? hints : StoreHints()).value();
    ASSERT_TRUE(one->wait());
    ASSERT_TRUE(other->wait());
    ASSERT_TRUE(store_->flush());
    EXPECT_EQ(store_->inspect(keys).size(), 2u);
    EXPECT_EQ(store_->lookup(keys).exact_blocks, 10u);
    const StoreLookup named = store_->lookup(keys, {.method = hints.method});
    EXPECT_EQ(named.blocks, 10u);
    EXPECT_EQ(named.exact_blocks, 0u);
    while (store_->remove(keys) > 0) continue;
    ASSERT_TRUE(store_->flush());
  }
}

TEST_F(StoreOwnerTest, ALoadTellsWhoOwesItBytesAndHowManyItHas) {
  open_shutter();
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store_, keys));
  ASSERT_TRUE(store_->flush());
  EXPECT_TRUE(store_->idle());
  Kv kv(64);
  const auto load = store_->load(keys, kv.view()).value();
  EXPECT_EQ(load->decoded_bytes(), 0u);
  ASSERT_TRUE(load->wait());
  EXPECT_EQ(load->owing(), 0u);
  EXPECT_GE(load->decoded_bytes(), small_geometry().bytes(64 * kBlockTokens));
}

}  // namespace
}  // namespace shale::testing
