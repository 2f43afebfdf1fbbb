// What a load has begun to read stays until it has been read, though something else needs its room.
#include <gtest/gtest.h>

#include <vector>

#include "store/placed_store.h"

namespace shale::testing {
namespace {

// Nothing happens but in work(), a load has one read in flight, and the clock stands where nobody sleeps.
class StoreReadingTest : public StorePlacementTest {
 protected:
  void open_over(std::vector<StoreTier> tiers, StoreOptions options) {
    options.threads = 0;
    options.staging_bytes = 1 << 10;
    store_ = Store::open(std::move(options), std::move(tiers), virtual_clock_).value();
  }
  // As far as it goes before time passes.
  void work() {
    InlineExecutor executor;
    for (int i = 0; i < 1000; ++i) store_->work(executor, 1e-3);
  }
  // Saves something dearer, as it is, which waits for the room of what `load` reads; then that reads on.
  void save_beside(StoreLoad& load, std::span<const BlockKey> dearer) {
    const Kv kv(dearer);
    const auto save = store_->save(dearer, kv.readable(), {.recompute_s = 1e6, .pin = true}).value();
    work();
    EXPECT_FALSE(save->done()) << "its room is still being read";
    EXPECT_TRUE(load.wait());
    EXPECT_TRUE(load.failures().empty()) << load.failures()[0].error.message;
    const Status saved = save->wait();
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_TRUE(store_->flush());
    EXPECT_EQ(store_->lookup(dearer).tier, 0u);
    EXPECT_EQ(store_->stats().stale_extents, 0u);
  }

  const VirtualClock virtual_clock_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreReadingTest, WhatIsBeingReadIsNotDemotedBeforeThat) {
  open_over(tiers_of(memory_tier(virtual_clock_, 430 << 10), memory_tier(virtual_clock_)), small_options());
  const auto cheap = chain_of(1, 2 * kBlocks), dear = chain_of(1000, 2 * kBlocks);  // two extents each
  ASSERT_TRUE(save_all(*store_, cheap, {.recompute_s = 1}));
  ASSERT_TRUE(store_->flush());
  Kv kv(cheap.size());
  const auto load = store_->load(cheap, kv.view()).value();
  save_beside(*load, dear);
  std::uint32_t wrong = 0;
  for (std::uint32_t b = 0; b < kv.blocks(); ++b) wrong += kv.holds(b, cheap[b]) ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(store_->lookup(cheap).tier, 1u) << "it went when it had been read";
  expect_sound(*store_);
}

TEST_F(StoreReadingTest, WhatIsBeingReadIsNotCutBeforeThat) {
  open_over(tiers_of(memory_tier(virtual_clock_, 300 << 10)), with_methods({"knorm"}));
  const auto cheap = chain_of(1, kBlocks), dear = chain_of(1000, kBlocks);
  const Method knorm = Method::parse("knorm").value();
  ASSERT_TRUE(save_all(*store_, cheap, {.method = knorm, .recompute_s = 100}));
  ASSERT_TRUE(store_->flush());
  Kv kv(cheap.size());
  const auto load = store_->load(cheap, kv.view(), {.needs = kAny}).value();
  save_beside(*load, dear);
  ASSERT_EQ(load->runs().size(), 1u);
  EXPECT_EQ(load->runs()[0].keep, 1);
  const auto left = store_->inspect(cheap);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_LT(left[0].keep, 1) << "it was cut when it had been read";
  expect_sound(*store_);
}

}  // namespace
}  // namespace shale::testing
