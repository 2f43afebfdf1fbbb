// What a request may ask for beside "what is there": variants, tiers, parts, and what lies in the store.
#include <gtest/gtest.h>

#include <algorithm>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

class StoreQueryTest : public StoreTest {
 protected:
  static void save_lossy(Store& store, std::span<const BlockKey> keys, const char* method, double quality,
                         double keep = 1) {
    StoreHints hints;
    hints.method = Method::parse(method).value();
    hints.quality = quality;
    hints.keep = keep;
    const Status saved = save_all(store, keys, hints);
    ASSERT_TRUE(saved) << saved.error().message;
  }
};

TEST_F(StoreQueryTest, OfSeveralVariantsTheOneWorthMostIsTakenAndANamedOneBeforeIt) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 64);
  save_lossy(*store, keys, "kivi4", 0.5);
  save_lossy(*store, keys, "int8", 0.9);
  const auto method = [&](const StoreNeeds& needs) {
    const StoreLookup found = store->lookup(keys, needs);
    return found.spans.empty() ? std::string() : found.spans[0].method.text();
  };
  EXPECT_EQ(method({}), "");
  EXPECT_EQ(method({.exact = false}), "int8") << "quality is worth more than the time of these few bytes";
  EXPECT_EQ(method({.method = Method::parse("kivi4").value()}), "kivi4");
  ASSERT_TRUE(save_all(*store, keys));
  EXPECT_EQ(method({.exact = false}), "full");
  EXPECT_EQ(method({.method = Method::parse("turboquant4").value()}), "full") << "it is not there";
  Kv kv(64);
  StoreLoadOptions options;
  options.needs.method = Method::parse("kivi4").value();
  const auto load = store->load(keys, kv.view(), options).value();
  ASSERT_TRUE(load->wait());
  EXPECT_EQ(load->runs().at(0).method.text(), "kivi4");
}

TEST_F(StoreQueryTest, ANamedVariantIsReadAtTheKeepThatIsAskedFor) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 64);
  save_lossy(*store, keys, "knorm", 0.9, 0.75);
  StoreLoadOptions options;
  options.needs = {.method = Method::parse("knorm").value(), .keep = 0.25};
  const StoreLookup found = store->lookup(keys, options.needs);
  ASSERT_EQ(found.spans.size(), 1u);
  EXPECT_EQ(found.spans[0].keep, 0.25);
  EXPECT_LT(found.spans[0].bytes, 64u * 3072 / 2);
  Kv kv(64);
  const auto load = store->load(keys, kv.view(), options).value();
  while (!load->planned()) std::this_thread::yield();
  ASSERT_EQ(load->runs().size(), 1u) << "before any byte is in the view";
  EXPECT_TRUE(kv.untouched());
  for (const std::uint32_t rows : load->runs()[0].rows) EXPECT_EQ(rows, 64u);
  ASSERT_TRUE(load->wait());
  EXPECT_EQ(load->runs()[0].keep, 0.25);
  options.needs.keep = 1;
  EXPECT_EQ(store->lookup(keys, options.needs).blocks, 0u) << "so much is not there";
}

TEST_F(StoreQueryTest, AHitThatEndsInsideAnExtentCanBeHeldToExactChunks) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 64);
  save_lossy(*store, keys, "int8", 0.9);
  EXPECT_EQ(store->lookup(keys, {.exact = false, .exact_after = 30}).blocks, 28u) << "seven chunks of four";
  EXPECT_EQ(store->lookup(keys, {.exact = false, .exact_after = 64}).blocks, 64u);
  ASSERT_TRUE(save_all(*store, keys));
  const StoreLookup found = store->lookup(keys, {.method = Method::parse("int8").value(), .exact_after = 30});
  EXPECT_EQ(found.blocks, 64u);
  ASSERT_EQ(found.spans.size(), 2u);
  EXPECT_FALSE(found.spans[0].exact);
  EXPECT_TRUE(found.spans[1].exact);
  EXPECT_EQ(found.spans[1].first_block, 28u);
}

TEST_F(StoreQueryTest, TiersCanBeLeftOut) {
  const auto store = open_both();
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->lookup(keys).tier, 0u);
  EXPECT_EQ(store->lookup(keys, {.tiers_excluded = 1}).tier, 1u);
  EXPECT_EQ(store->lookup(keys, {.tiers_excluded = 3}).blocks, 0u);
  EXPECT_EQ(load_all(*store, keys, {.needs = {.tiers_excluded = 1}}), 64u);
  EXPECT_EQ(store->stats().tiers[1].blocks_loaded, 64u);
}

TEST_F(StoreQueryTest, ALoadMayEndBeforeWhatIsThere) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 200);
  ASSERT_TRUE(save_all(*store, keys));
  const StoreLookup found = store->lookup(keys);
  ASSERT_EQ(found.spans.size(), 4u);
  EXPECT_EQ(found.spans[2].first_block, 128u);
  EXPECT_LE(found.spans[0].ready_s, found.spans[3].ready_s);
  EXPECT_EQ(load_all(*store, keys, {.end_block = found.spans[2].first_block}), 128u);
}

TEST_F(StoreQueryTest, ABudgetBoundsWhatOnePollDecodes) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 64 * 6);
  ASSERT_TRUE(save_all(*store, keys));
  Kv kv(keys.size());
  const auto load = store->load(keys, kv.view()).value();
  InlineExecutor executor;
  unsigned polls = 0;
  while (!load->poll(executor, 0)) ++polls;
  EXPECT_GE(polls, 5u) << "one of six reads at a time";
  EXPECT_TRUE(load->failures().empty());
  for (std::uint32_t b = 0; b < keys.size(); ++b) EXPECT_TRUE(kv.holds(b, keys[b]));
}

TEST_F(StoreQueryTest, InspectShowsEveryVariantAlongAChain) {
  const auto store = open_both();
  const auto keys = chain_of(1, 70);
  StoreHints hints;
  hints.label = "a chat";
  hints.run = {1, 2};
  hints.pin = true;
  save_lossy(*store, keys, "int8", 0.9);
  ASSERT_TRUE(save_all(*store, keys, hints));
  ASSERT_TRUE(store->flush());
  const auto extents = store->inspect(keys);
  ASSERT_EQ(extents.size(), 4u);
  EXPECT_EQ(extents[0].first_block, 0u);
  EXPECT_EQ(extents[3].first_block, 64u);
  EXPECT_EQ(extents[3].blocks, 6u);
  save_lossy(*store, keys, "kivi4", 0.9);
  EXPECT_EQ(store->inspect(keys).size(), 6u) << "a form that is asked for is stored beside the exact one";
  const auto exact = std::ranges::find(extents, true, &StoreExtent::exact);
  EXPECT_EQ(exact->label, "a chat");
  EXPECT_EQ(exact->run, hints.run);
  EXPECT_TRUE(exact->pinned);
  EXPECT_EQ(exact->tiers, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_NEAR(exact->frequency, 1, 0.1);
  std::size_t count = 0;
  store->for_each_extent([&](const StoreExtent& extent) {
    ++count;
    for (const std::uint32_t tier : extent.tiers) EXPECT_TRUE(store->verify(extent.name, tier));
  });
  EXPECT_EQ(count, 6u);
  EXPECT_EQ(code_of(store->verify({1, 1}, 0)), ErrorCode::kNotFound);
}

TEST_F(StoreQueryTest, WhatWasUsedWhileTheClockWasAheadAges) {
  VirtualClock clock;
  double wall = 1e9 + 7200;
  StoreOptions options = small_options();
  options.wall_clock = [&wall] { return wall; };
  options.threads = 0;
  const auto open_disk = [&] {
    return Store::open(options, tiers_of(disk_tier(folder_.path() / "disk", clock)), clock).value();
  };
  const auto keys = chain_of(1, 8);
  const auto store = Store::open(options, tiers_of(memory_tier(clock)), clock).value();
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(save_all(*open_disk(), keys));
  for (int use = 0; use < 10; ++use) store->touch(keys);
  const auto pass = [&](double seconds) {
    InlineExecutor executor;
    clock.advance(seconds);
    wall += seconds;
    store->work(executor, 0.01);
  };
  pass(1);
  EXPECT_GT(store->inspect(keys).at(0).frequency, 10);
  wall -= 7200;
  EXPECT_LE(open_disk()->inspect(keys).at(0).accessed_s, wall) << "after a restart, too";
  pass(1);
  pass(3600);
  EXPECT_LT(store->inspect(keys).at(0).frequency, 1);
}

TEST_F(StoreQueryTest, ARunIsRemovedByItsName) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  StoreHints hints;
  hints.run = {1, 2};
  ASSERT_TRUE(save_all(*store, chain_of(1, 70), hints));
  ASSERT_TRUE(save_all(*store, chain_of(1000, 70)));
  EXPECT_EQ(store->remove_run({1, 2}), 2u);
  EXPECT_EQ(store->lookup(chain_of(1, 70)).blocks, 0u);
  EXPECT_EQ(store->lookup(chain_of(1000, 70)).blocks, 70u);
}

TEST_F(StoreQueryTest, VerifyFindsADamagedByte) {
  const auto store =
      open(tiers_of(StoreTier{.tier = std::make_unique<FaultyTier>(make_memory_tier(kUnlimited, clock_),
                                                                   Faults{.corrupt_read = only(2)}, clock_)}));
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store, keys));
  const Hash128 name = store->inspect(keys).at(0).name;
  EXPECT_EQ(code_of(store->verify(name, 0)), ErrorCode::kCorrupt) << "the second blob that was read";
  EXPECT_TRUE(store->verify(name, 0));
}

}  // namespace
}  // namespace shale::testing
