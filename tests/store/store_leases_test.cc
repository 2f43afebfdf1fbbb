// What stores that share a folder promise each other for a time: pins, and times to live that end.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "extents/index_folder.h"
#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

class StoreLeasesTest : public StoreTest {
 protected:
  std::unique_ptr<Store> open_disk() { return open(tiers_of(disk_tier(folder_.path(), clock_))); }
  bool is_pinned(const Store& store) const {
    const auto found = store.inspect(keys_);
    return !found.empty() && found[0].pinned;
  }
  const std::vector<BlockKey> keys_ = chain_of(1, 16), later_ = chain_of(500, 4);
};

TEST_F(StoreLeasesTest, APinHoldsThoughAnotherProcessUnpins) {
  const auto leader = open_disk(), one = open_disk(), other = open_disk();
  ASSERT_TRUE(save_all(*leader, keys_));
  for (const auto* store : {&one, &other}) {
    ASSERT_TRUE(eventually_beside_others([&] { return (*store)->pin(keys_) == 16; }));
    ASSERT_TRUE((*store)->flush());
  }
  EXPECT_EQ(other->unpin(keys_), 16u);
  ASSERT_TRUE(save_all(*other, later_));
  ASSERT_TRUE(eventually_beside_others([&] { return leader->lookup(later_).blocks == 4; }));
  EXPECT_TRUE(is_pinned(*leader)) << "by the first";
}

TEST_F(StoreLeasesTest, APinHoldsForACopyThatComesToLieInTheFolder) {
  const auto leader = open_disk();
  const auto other = open(tiers_of(memory_tier(clock_), disk_tier(folder_.path(), clock_)));
  StoreHints hints;
  hints.pin = true;
  ASSERT_TRUE(save_all(*other, keys_, hints)) << "in memory first";
  ASSERT_TRUE(other->flush());
  ASSERT_TRUE(save_all(*other, later_));
  ASSERT_TRUE(eventually_beside_others([&] { return leader->lookup(later_).blocks == 4; }));
  EXPECT_TRUE(is_pinned(*leader));
}

TEST_F(StoreLeasesTest, PinsOfWhoWritesASnapshotAreInIt) {
  const auto leader = open_disk();
  StoreHints hints;
  hints.pin = true;
  ASSERT_TRUE(save_all(*leader, keys_, hints));
  for (int dead = 0; dead < 10; ++dead) (void)open_disk();  // so many logs that a snapshot is due
  const auto logs = [&] {
    const std::filesystem::directory_iterator all(folder_.path() / "store");
    return std::count_if(begin(all), end(all),
                         [](const auto& entry) { return entry.path().filename().string().starts_with("log-"); });
  };
  ASSERT_TRUE(eventually_beside_others([&] { return logs() == 1; }));
  EXPECT_TRUE(is_pinned(*open_disk()));
}

TEST_F(StoreLeasesTest, ALeaseByAClockThatIsAheadIsNoLonger) {
  std::atomic<double> wall = 1e9;
  StoreOptions options = small_options();
  options.wall_clock = [&wall] { return wall.load(); };
  const auto store = open(tiers_of(disk_tier(folder_.path(), clock_)), options);
  ASSERT_TRUE(save_all(*store, keys_));
  ASSERT_TRUE(store->flush());
  const auto log = IndexFolder::open(folder_.path()).value();
  IndexRecord lease{.type = IndexRecord::Type::kLease, .time_s = wall, .name = store->inspect(keys_).at(0).name};
  lease.until_s = wall + 1e6;
  log->append(lease);
  ASSERT_TRUE(log->flush());
  EXPECT_TRUE(eventually_beside_others([&] { return is_pinned(*store); }));
  wall += 61;
  EXPECT_FALSE(is_pinned(*store));
}

// Who leads when it ends still reads it, and does not come to remove it.
TEST_F(StoreLeasesTest, WhatHasExpiredIsRemovedByWhoeverLeadsNext) {
  VirtualClock clock;
  std::atomic<double> wall = 1e9;
  StoreOptions options = small_options();
  options.wall_clock = [&wall] { return wall.load(); };
  options.threads = 0;
  VirtualClock leaders_clock;  // it stands where the leader is to do nothing
  const auto open_at = [&](const Clock& its) {
    return Store::open(options, tiers_of(disk_tier(folder_.path(), its)), its).value();
  };
  auto leader = open_at(leaders_clock);
  const auto other = open_at(clock);
  const auto keys = chain_of(1, 8);
  ASSERT_TRUE(save_all(*leader, keys, {.time_to_live_s = 60}));
  const auto seconds_pass = [&](const std::function<bool()>& until) {
    return eventually([&] {
      clock.advance(0.3);
      return until();
    });
  };
  ASSERT_TRUE(seconds_pass([&] {
    leaders_clock.advance(0.3);
    return other->lookup(keys).blocks == 8;
  }));
  Kv kv(8);
  auto load = leader->load(keys, kv.view()).value();
  wall += 61;
  int rounds = 0;
  EXPECT_TRUE(seconds_pass([&] { return ++rounds == 30; }));
  EXPECT_EQ(other->stats().expired_extents, 0u) << "it is not its to remove";
  EXPECT_GT(other->stats().tiers[0].bytes, 0u);
  load.reset();
  leader.reset();
  EXPECT_TRUE(seconds_pass([&] { return other->stats().tiers[0].bytes == 0; }));
  EXPECT_EQ(other->stats().expired_extents, 1u);
}

// A process that saves for a week would keep them all in mind.
TEST_F(StoreLeasesTest, WhatIsGoneBeforeItsTimeToLiveEndsIsForgotten) {
  VirtualClock clock;
  double wall = 1e9;
  StoreOptions options = small_options();
  options.wall_clock = [&wall] { return wall; };
  options.threads = 0;
  const auto store = Store::open(options, tiers_of(memory_tier(clock)), clock).value();
  for (int i = 0; i < 40; ++i) {
    const auto keys = chain_of(1000 * (i + 1), 16);
    ASSERT_TRUE(save_all(*store, keys, {.time_to_live_s = 1e6}));
    if (i % 2 == 1) store->remove(keys);
    wall += 1;
  }
  EXPECT_EQ(store->stats().extents, 20u);
  expect_sound(*store);
  wall += 2e6;
  InlineExecutor executor;
  for (int i = 0; i < 100; ++i) {
    store->work(executor, 0.01);
    clock.advance(0.3);
  }
  EXPECT_EQ(store->stats().extents, 0u) << "and what is left ends with it";
}

}  // namespace
}  // namespace shale::testing
