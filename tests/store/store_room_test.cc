// What a store promises its callers: tenants, room, pins, times to live, events.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "store/index_fill.h"
#include "store/store.h"
#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;
class StoreRoomTest : public StoreTest {};

TEST_F(StoreRoomTest, NamespacesGeometriesAndTenantsAreApart) {
  const auto keys = chain_of(1, 8);
  const auto store = open_both();
  StoreHints hints;
  hints.tenant = "one";
  ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  EXPECT_EQ(store->lookup(keys, {}, "other").blocks, 0u);
  EXPECT_EQ(store->lookup(keys, {}, "one").blocks, 8u);
  StoreLoadOptions options;
  options.tenant = "one";
  EXPECT_EQ(load_all(*store, keys, options), 8u);
  ASSERT_TRUE(store->flush());
  const StoreStats stats = store->stats();
  ASSERT_EQ(stats.tenants.size(), 3u);
  EXPECT_EQ(stats.tenants[1].tenant, "one");
  EXPECT_EQ(stats.tenants[1].bytes, stats.tiers[0].bytes + stats.tiers[1].bytes);
  EXPECT_EQ(stats.tenants[1].blocks_saved, 8u);
  EXPECT_EQ(stats.tenants[1].blocks_loaded, 8u);
  EXPECT_EQ(stats.tenants[1].blocks_found, 8u);
  EXPECT_EQ(stats.tenants[2].tenant, "other");
  EXPECT_EQ(stats.tenants[2].bytes, 0u);

  auto another = small_options();
  another.name_space = "another model";
  const auto stranger = open(tiers_of(disk_tier(folder_.path() / "disk", clock_)), another);
  EXPECT_EQ(stranger->lookup(keys, {}, "one").blocks, 0u);
  ASSERT_TRUE(save_all(*stranger, keys));
  EXPECT_EQ(load_all(*stranger, keys), 8u);
}

// Where this process dies, what it had begun to write takes its room with it.
TEST_F(StoreRoomTest, WhatHasBegunToBeWrittenHasItsRoom) {
  constexpr std::uint64_t kDisk = 400 << 10;
  const VirtualClock clock;
  StoreOptions options = small_options();
  options.threads = 0;
  auto tiers = tiers_of(disk_tier(folder_.path(), clock, kDisk));
  const auto store = Store::open(options, std::move(tiers), clock).value();
  const Hash128 object{1, 2};
  ASSERT_TRUE(store->begin_own(0, object, kDisk - 4096));
  EXPECT_FALSE(store->begin_own(0, {1, 3}, 8192));
  const auto keys = chain_of(1, 64);
  EXPECT_EQ(code_of(save_all(*store, keys)), ErrorCode::kFull);
  store->end_own(0, object);
  ASSERT_TRUE(store->flush());
  EXPECT_TRUE(save_all(*store, keys));
  EXPECT_TRUE(store->check_integrity());
}

TEST_F(StoreRoomTest, RoomThatOthersMakeOnASharedTierIsUsed) {
  constexpr std::uint64_t kShared = 600 << 10;
  const VirtualClock clock;
  const auto open_shared = [&] {
    auto tiers = tiers_of(shared_tier(folder_.path() / "shared", clock, kShared));
    return std::move(*Store::open(small_options(), std::move(tiers), clock));
  };
  const auto keeps = [](Store& store, std::span<const BlockKey> keys) {
    (void)save_all(store, keys);
    (void)store.flush();
    return store.lookup(keys).blocks == keys.size();
  };
  const auto other = open_shared();
  std::vector<std::vector<BlockKey>> chains = {chain_of(1000, 64)};
  while (keeps(*other, chains.back()) && chains.size() < 10)
    chains.push_back(chain_of(1000 * static_cast<std::int32_t>(chains.size() + 1), 64));
  ASSERT_LT(chains.size(), 10u) << "it is never full";
  const auto store = open_shared();
  const auto keys = chain_of(1, 64);
  ASSERT_FALSE(keeps(*store, keys)) << "there is room from the start";
  for (const auto& chain : chains) other->remove(chain);
  ASSERT_TRUE(other->flush());
  clock.sleep_until_s(clock.now_s() + 6);
  EXPECT_TRUE(eventually([&] { return keeps(*store, keys); }));
}

TEST_F(StoreRoomTest, AFullMemoryPushesDownWhatIsWorthLeast) {
  const auto store = open_both(400 << 10);
  std::vector<std::vector<BlockKey>> chains;
  for (int c = 0; c < 10; ++c) {
    chains.push_back(chain_of(1000 * (c + 1), 64));
    StoreHints hints;
    ASSERT_TRUE(save_all(*store, chains.back(), hints));
    for (int use = 0; c == 0 && use < 20; ++use) store->touch(chains[0]);
    ASSERT_TRUE(store->flush()) << "what is being copied to the disk stays in memory";
  }
  EXPECT_EQ(store->lookup(chains[0]).tier, 0u) << "it is used most";
  const auto below = [&](const auto& keys) { return store->lookup(keys).tier == 1; };
  EXPECT_GE(std::ranges::count_if(chains, below), 8);
  for (const auto& keys : chains) EXPECT_EQ(load_all(*store, keys), 64u);
  const StoreStats stats = store->stats();
  EXPECT_GT(stats.tiers[0].demoted, 0u);
  EXPECT_LE(stats.tiers[0].bytes, 400u << 10);
  expect_sound(*store);
}

TEST_F(StoreRoomTest, AFullStoreForgetsWhatIsWorthLeastAndKeepsWhatIsPinned) {
  auto options = small_options();
  options.frequency_half_life_s = 0.02;  // what was used last is worth most
  const auto store =
      open(tiers_of(memory_tier(clock_, 200 << 10), disk_tier(folder_.path() / "disk", clock_, 800 << 10)), options);
  const auto pinned = chain_of(7, 32);
  StoreHints hints;
  hints.pin = true;
  ASSERT_TRUE(save_all(*store, pinned, hints));
  for (int c = 0; c < 40; ++c) {
    const Status saved = save_all(*store, chain_of(1000 * (c + 1), 32));
    ASSERT_TRUE(saved) << saved.error().message;
    ASSERT_TRUE(store->flush());
  }
  EXPECT_EQ(load_all(*store, pinned), 32u);
  EXPECT_EQ(load_all(*store, chain_of(40000, 32)), 32u) << "the last";
  EXPECT_EQ(load_all(*store, chain_of(2000, 32)), 0u);
  ASSERT_TRUE(store->flush()) << "what changes places is in memory until it lies below";
  const StoreStats stats = store->stats();
  EXPECT_LE(stats.tiers[0].bytes, 200u << 10);
  EXPECT_LE(stats.tiers[1].bytes, 800u << 10);
  EXPECT_GT(stats.tiers[1].removed, 0u);
  expect_sound(*store);
  EXPECT_EQ(store->unpin(pinned), 32u);
  StoreHints dear;
  dear.recompute_s = 1000;
  // Where it could not change places with another, it stays where it is for some seconds.
  const double patience_s = clock_.now_s() + 20;
  for (int c = 40; c < 80 || (store->lookup(pinned).blocks > 0 && clock_.now_s() < patience_s); ++c) {
    const auto keys = chain_of(1000 * (c + 1), 32);
    (void)save_all(*store, keys, dear);  // full where all that is there is worth more
    for (int use = 0; use < 4; ++use) store->touch(keys);
    ASSERT_TRUE(store->flush());
  }
  EXPECT_EQ(store->lookup(pinned).blocks, 0u);
}

// Nothing is demoted for a form beside dearer extents: it would wait for as long as the store has patience.
TEST_F(StoreRoomTest, AFormThatIsWorthLessThanWhatIsThereWaitsForNothing) {
  const VirtualClock clock;
  StoreOptions options = small_options();
  options.threads = 0;
  auto tiers = tiers_of(memory_tier(clock, 110 << 10));
  const auto store = Store::open(options, std::move(tiers), clock).value();
  StoreHints dear;
  dear.recompute_s = 1000;
  ASSERT_TRUE(save_all(*store, chain_of(1, 32), dear));
  ASSERT_TRUE(store->flush());
  const double before_s = clock.now_s();
  StoreHints cheap;
  cheap.method = Method::parse("int8").value();
  cheap.quality = 0.9;
  cheap.recompute_s = 1e-3;
  EXPECT_EQ(code_of(save_all(*store, chain_of(1000, 32), cheap)), ErrorCode::kFull);
  EXPECT_LT(clock.now_s() - before_s, 1);
  EXPECT_EQ(store->lookup(chain_of(1, 32)).blocks, 32u);
}

TEST_F(StoreRoomTest, WhatWasJustStoredGivesWayToWhatIsWorthMore) {
  const VirtualClock clock;
  StoreOptions options = small_options();
  options.threads = 0;
  const auto store = Store::open(options, tiers_of(memory_tier(clock, 110 << 10)), clock).value();
  const auto cheap = chain_of(1, 32), dear = chain_of(1000, 32);
  const Kv cheap_kv(cheap), dear_kv(dear);
  const auto first = store->save(cheap, cheap_kv.readable(), {.recompute_s = 1}).value();
  const auto second = store->save(dear, dear_kv.readable(), {.recompute_s = 2}).value();
  EXPECT_TRUE(first->wait());
  EXPECT_TRUE(second->wait());
  EXPECT_EQ(store->lookup(dear).blocks, 32u);
  EXPECT_TRUE(store->check_integrity());
}

// A memory of one chain above a disk on which `taken` is promised to somebody, which the placement does not see.
class DemotionTest : public StoreRoomTest {
 protected:
  static constexpr std::uint64_t kMemory = 110 << 10, kDisk = 800 << 10;

  void open_over(std::vector<StoreTier> below) {
    StoreOptions options = small_options();
    options.threads = 0;
    auto tiers =
        tiers_of(memory_tier(virtual_clock_, kMemory), disk_tier(folder_.path() / "disk", virtual_clock_, kDisk));
    std::ranges::move(below, std::back_inserter(tiers));
    store_ = Store::open(options, std::move(tiers), virtual_clock_).value();
    ASSERT_TRUE(store_->begin_own(1, taken_, kDisk - 4096));
    ASSERT_TRUE(save_all(*store_, cheap_, {.recompute_s = 1}));
    ASSERT_TRUE(store_->flush());
    ASSERT_EQ(store_->lookup(cheap_).tier, 0u);
  }
  // In whose place `cheap_` goes down, which it holds before that lies anywhere else.
  void save_dearer() { ASSERT_TRUE(save_all(*store_, dear_, {.recompute_s = 1000})); }

  const VirtualClock virtual_clock_;
  const Hash128 taken_{1, 2};
  const std::vector<BlockKey> cheap_ = chain_of(1, 32), dear_ = chain_of(1000, 32);
  std::unique_ptr<Store> store_;
};

TEST_F(DemotionTest, WaitsForRoomAsLongAsItMayCome) {
  open_over({});
  save_dearer();
  InlineExecutor executor;
  while (virtual_clock_.now_s() < 10) {
    store_->work(executor, 1e-3);
    virtual_clock_.sleep_until_s(virtual_clock_.now_s() + 1e-2);
  }
  EXPECT_EQ(store_->lookup(cheap_).blocks, 32u) << "the room is still being written to";
  store_->end_own(1, taken_);
  EXPECT_TRUE(eventually([&] {  // behind threads of the disk's, for which the store's clock does not wait
    store_->work(executor, 1e-3);
    return store_->lookup(cheap_).tier == 1;
  }));
  EXPECT_EQ(load_all(*store_, cheap_), 32u);
  EXPECT_EQ(load_all(*store_, dear_), 32u);
  EXPECT_EQ(store_->stats().dropped_extents, 0u);
  expect_sound(*store_);
}

TEST_F(DemotionTest, GoesFurtherDownWhereNoRoomComes) {
  open_over(tiers_of(memory_tier(virtual_clock_, kDisk)));
  store_->written_own(1, taken_);
  save_dearer();
  ASSERT_TRUE(store_->flush());
  EXPECT_EQ(store_->lookup(cheap_).tier, 2u);
  store_->end_own(1, taken_);
  EXPECT_EQ(load_all(*store_, cheap_), 32u);
  EXPECT_EQ(load_all(*store_, dear_), 32u);
  EXPECT_EQ(store_->stats().dropped_extents, 0u);
  expect_sound(*store_);
}

TEST_F(StoreRoomTest, WhatIsStillToBeStoredIsCounted) {
  auto options = small_options();
  options.threads = 0;
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  const auto keys = chain_of(1, 64);
  const Kv kv(keys);
  const auto save = store->save(keys, kv.readable()).value();
  EXPECT_EQ(store->stats().chunks_saving, 16u);
  EXPECT_EQ(store->stats().saves_left, 1u);
  EXPECT_EQ(store->stats().bytes_left, kv.readable().geometry.bytes(64 * kBlockTokens));
  ASSERT_TRUE(save->wait());
  EXPECT_EQ(store->stats().chunks_saving, 0u);
  EXPECT_EQ(store->stats().bytes_left, 0u);
  EXPECT_EQ(store->stats().saves, 1u);
}

TEST_F(StoreRoomTest, WhatIsStillToBeMovedIsCounted) {
  auto options = small_options();
  options.threads = 0;
  const auto store =
      open(tiers_of(memory_tier(clock_, 640 << 10), disk_tier(folder_.path() / "disk", clock_)), options);
  InlineExecutor executor;
  std::uint64_t most = 0;
  for (int i = 0; i < 6; ++i) {
    const auto keys = chain_of(1000 * (i + 1), 64);
    const Kv kv(keys);
    const auto save = store->save(keys, kv.readable()).value();
    for (; !save->done(); most = std::max(most, store->stats().moves_left)) store->work(executor, 1e-6);
  }
  ASSERT_TRUE(store->flush());
  EXPECT_GT(store->stats().tiers[0].demoted, 0u);
  EXPECT_GT(most, 0u);
  EXPECT_EQ(store->stats().moves_left, 0u);
}

// Of a store that does nothing by itself, at that time.
StoreOptions options_at(const std::atomic<double>& wall) {
  StoreOptions options = small_options();
  options.wall_clock = [&wall] { return wall.load(); };
  options.threads = 0;
  return options;
}

TEST_F(StoreRoomTest, TimesToLiveEndAlsoInAnotherStore) {
  std::atomic<double> wall = 1e9;
  const auto options = options_at(wall);
  const auto keys = chain_of(1, 8);
  {
    const auto store = open(tiers_of(disk_tier(folder_.path() / "disk", clock_)), options);
    StoreHints hints;
    hints.time_to_live_s = 60;
    ASSERT_TRUE(save_all(*store, keys, hints));
    EXPECT_EQ(store->lookup(keys).blocks, 8u);
  }
  const auto store = open(tiers_of(disk_tier(folder_.path() / "disk", clock_)), options);
  wall += 59;
  EXPECT_EQ(store->lookup(keys).blocks, 8u);
  wall += 2;
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  InlineExecutor executor;
  for (int i = 0; i < 1000 && store->stats().tiers[0].bytes > 0; ++i) {
    store->work(executor, 0.01);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(store->stats().expired_extents, 1u);
  EXPECT_EQ(store->stats().tiers[0].bytes, 0u);
}

// Nobody has removed it yet when it is saved again.
TEST_F(StoreRoomTest, WhatIsSavedAgainAfterItsTimeToLiveLivesOn) {
  std::atomic<double> wall = 1e9;
  const auto options = options_at(wall);
  const auto keys = chain_of(1, 8);
  const auto tiers = [&] { return tiers_of(disk_tier(folder_.path() / "disk", clock_)); };
  auto store = open(tiers(), options);
  StoreHints hints;
  hints.time_to_live_s = 60;
  ASSERT_TRUE(save_all(*store, keys, hints));
  for (const bool forever : {false, true}) {
    wall += 61;
    EXPECT_EQ(store->lookup(keys).blocks, 0u);
    if (forever) hints.time_to_live_s = 0;
    ASSERT_TRUE(save_all(*store, keys, hints));
    EXPECT_EQ(store->lookup(keys).blocks, 8u);
    wall += 59;
    EXPECT_EQ(store->lookup(keys).blocks, 8u);
  }
  wall += 1e6;
  ASSERT_TRUE(store->flush());
  store = open(tiers(), options);
  EXPECT_EQ(load_all(*store, keys), 8u) << "and so others hear";
}

TEST_F(StoreRoomTest, RemovedIsGoneAtOnceAndFromDisk) {
  const auto store = open_both();
  const auto keys = chain_of(1, 100);
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->remove(std::span(keys).first(70)), 64u) << "extents that lie among them";
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  EXPECT_EQ(store->remove(keys), 36u);
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->stats().tiers[1].bytes, 0u);
  expect_sound(*store);
}

TEST_F(StoreRoomTest, EventsTellWhatARouterNeeds) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 70);
  pollfd waiting = {store->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  StoreHints hints;
  hints.tenant = "someone";
  ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(poll(&waiting, 1, 1000), 1);
  auto events = store->take_events(100);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, StoreEvent::Kind::kStored);
  EXPECT_EQ(events[0].tenant, "someone");
  EXPECT_EQ(events[0].parent, BlockKey{});
  EXPECT_TRUE(std::ranges::equal(events[0].keys, std::span(keys).first(64)));
  EXPECT_EQ(events[1].parent, keys[63]);
  EXPECT_EQ(events[1].block_tokens, kBlockTokens);
  EXPECT_EQ(store->remove(keys, "someone"), 70u);
  ASSERT_TRUE(store->flush());
  events = store->take_events(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, StoreEvent::Kind::kRemoved);
  EXPECT_EQ(store->take_events(100).size(), 1u);
}

TEST_F(StoreRoomTest, AFilledIndexIsFoundAndItsMissingBytesAreMisses) {
  const auto keys = [](std::size_t chain) { return chain_of(static_cast<std::int32_t>(1000 * (chain + 1)), 150); };
  fs::create_directories(folder_.path() / "disk");
  ASSERT_TRUE(fill_index(small_options(), folder_.path() / "disk", 20, keys));
  const auto store = open(tiers_of(disk_tier(folder_.path() / "disk", clock_)));
  EXPECT_EQ(store->stats().extents, 60u);
  EXPECT_EQ(store->stats().chunks, 20u * 38);
  for (std::size_t chain = 0; chain < 20; ++chain) EXPECT_EQ(store->lookup(keys(chain)).blocks, 150u);
  EXPECT_EQ(load_all(*store, keys(3)), 0u);
  EXPECT_EQ(store->stats().stale_extents, 3u);
  EXPECT_EQ(store->lookup(keys(3)).blocks, 0u);
}

}  // namespace
}  // namespace shale::testing
