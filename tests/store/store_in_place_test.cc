// Extents that change where they lie, while they are read.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "store/placed_store.h"

namespace shale::testing {
namespace {

// A load has asked for a part of it, and asks for the rest when that has come.
TEST_F(StorePlacementTest, WhatIsBeingReadIsNotCompressedInItsPlace) {
  const VirtualClock clock;
  StoreOptions options = with_methods({"int8"});
  options.threads = 0;
  options.staging_bytes = 1;  // one read at a time
  const auto store = Store::open(options, tiers_of(memory_tier(clock, kRoomForThree)), clock).value();
  const auto keys = chain_of(1, 3 * kBlocks);
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  ASSERT_EQ(store->lookup(keys).blocks, 3 * kBlocks);
  Kv kv(keys.size());
  const auto load = store->load(keys, kv.view()).value();
  std::vector<Kv> kvs;
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 2; ++c) kvs.emplace_back(chain_number(c));
  for (int c = 0; c < 2; ++c) saves.push_back(store->save(chain_number(c), kvs[c].readable()).value());
  InlineExecutor executor;
  for (int works = 0; works < 200; ++works) store->work(executor, 1e-3);
  ASSERT_TRUE(load->wait());
  EXPECT_TRUE(load->failures().empty());
  for (std::uint32_t b = 0; b < keys.size(); ++b) ASSERT_TRUE(kv.holds(b, keys[b]));
  for (const auto& save : saves) EXPECT_TRUE(save->wait());
  ASSERT_TRUE(store->flush());
  EXPECT_GT(store->stats().tiers[0].compressed, 0u);
  EXPECT_EQ(store->stats().stale_extents, 0u);
  expect_sound(*store);
}

}  // namespace
}  // namespace shale::testing
