// Forms that are there with less kept than is saved or made now: their name says nothing of how much that is.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "store/placed_store.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

class StoreKeepTest : public StorePlacementTest {
 protected:
  const Method knorm_ = Method::parse("knorm").value();
};

TEST_F(StoreKeepTest, AFormThatIsSavedAgainWithMoreKeptIsThereInFull) {
  const auto keys = chain_of(1, 64);
  StoreLoadOptions load;
  load.needs = {.method = knorm_};
  const auto disk = [&] { return tiers_of(memory_tier(clock_), disk_tier(folder_.path() / "disk", clock_)); };
  auto store = open(disk());
  ASSERT_TRUE(save_all(*store, keys, {.method = knorm_, .keep = 0.25}));
  ASSERT_TRUE(store->flush());
  ASSERT_EQ(store->stats().tiers[1].extents, 1u);
  ASSERT_TRUE(save_all(*store, keys, {.method = knorm_}));
  EXPECT_EQ(store->lookup(keys, load.needs).blocks, 64u);
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(load_all(*store, keys, load), 64u);
  expect_sound(*store);
  store = open(disk());
  EXPECT_EQ(load_all(*store, keys, load), 64u);
  expect_sound(*store);
}

// Of the exact copy, beside which others keep it with less.
TEST_F(StoreKeepTest, WhatIsMadeAnewWithMoreKeptIsNotTakenToLieWhereLessIs) {
  const auto shared = [&] {
    auto tier = shared_tier(folder_.path(), clock_);
    tier.tier = make_throttled_tier(std::move(tier.tier), parse_throttle("1GB/s,100ms").value(), clock_);
    return tier;
  };
  const auto keys = chain_number(0);
  {
    const auto store = open(tiers_of(shared()));
    ASSERT_TRUE(save_all(*store, keys));
    ASSERT_TRUE(save_all(*store, keys, {.method = knorm_, .keep = 0.25, .quality = 0.5}));
    ASSERT_TRUE(store->flush());
  }
  StoreOptions options = with_methods({"knorm"});
  options.placement.quality = [](const Hash128&, const Method&, double keep) -> std::optional<double> {
    return keep == 0.5 ? 0.99 : 0;
  };
  const auto store = open(tiers_of(memory_tier(clock_, 150 << 10), shared()), options);
  ASSERT_TRUE(eventually([&] { return store->lookup(keys).blocks == kBlocks && store->inspect(keys).size() == 2; }));
  for (int use = 0; use < 20; ++use) store->touch(keys);
  ASSERT_TRUE(eventually([&] { return store->stats().tiers[0].extents == 1; }));
  ASSERT_TRUE(store->flush());
  const StoreNeeds half{.method = knorm_, .keep = 0.5};
  StoreLookup found = store->lookup(keys, half);
  ASSERT_EQ(found.spans.size(), 1u);
  EXPECT_EQ(found.spans[0].method, knorm_);
  EXPECT_EQ(found.tier, 0u);
  Kv kv(kBlocks);
  const auto load = store->load(keys, kv.view(), {.needs = half}).value();
  ASSERT_TRUE(load->wait());
  EXPECT_TRUE(load->failures().empty());
  found = store->lookup(keys, {.method = knorm_, .keep = 0.5, .tiers_excluded = 1});
  ASSERT_EQ(found.spans.size(), 1u);
  EXPECT_TRUE(found.spans[0].exact) << "so much of it does not lie there";
  expect_sound(*store);
}

}  // namespace
}  // namespace shale::testing
