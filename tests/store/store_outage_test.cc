// Tiers that fail for a while, and what they hold afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "extents/index_folder.h"
#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

class StoreOutageTest : public StoreTest {
 protected:
  std::unique_ptr<Store> open_disk() { return open(tiers_of(disk_tier(folder_.path(), clock_))); }
  // How many blocks are there when nobody is being asked any more.
  static std::uint32_t found(Store& store, std::span<const BlockKey> keys) {
    EXPECT_TRUE(eventually([&] { return !store.lookup(keys).pending; }));
    return store.lookup(keys).blocks;
  }
};

class StoreRemovalTest : public StoreOutageTest {
 protected:
  void open_and_remove() {
    auto shared = shared_tier(folder_.path(), virtual_clock_);
    Faults faults{.fail_read = [this](std::uint64_t) { return unreadable_.load(); },
                  .fail_remove = [this](std::uint64_t) { return failing_.load(); }};
    shared.tier = std::make_unique<FaultyTier>(std::move(shared.tier), std::move(faults), virtual_clock_);
    tier_ = shared.tier.get();
    auto tiers = tiers_of(memory_tier(virtual_clock_), std::move(shared));
    store_ = Store::open(small_options(), std::move(tiers), virtual_clock_).value();
    ASSERT_TRUE(save_all(*store_, keys_));
    ASSERT_TRUE(store_->flush());
    EXPECT_EQ(store_->remove(keys_), 16u);
    ASSERT_TRUE(store_->flush()) << "which does not wait for the tier";
  }

  // Extents of the shared tier that events say were removed, since this was last asked.
  std::ptrdiff_t told_of() const {
    return std::ranges::count_if(store_->take_events(100), [](const StoreEvent& event) {
      return event.kind == StoreEvent::Kind::kRemoved && event.tier == 1;
    });
  }

  const std::vector<BlockKey> keys_ = chain_of(1, 16);
  std::atomic<bool> failing_ = true, unreadable_ = false;
  VirtualClock virtual_clock_;
  const Tier* tier_ = nullptr;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreRemovalTest, WhatCannotBeRemovedNowIsNotFoundAndRemovedLater) {
  open_and_remove();
  failing_ = false;
  EXPECT_EQ(found(*store_, keys_), 0u) << "though it is there";
  EXPECT_FALSE(tier_->list()->empty());
  virtual_clock_.advance(6);
  EXPECT_TRUE(eventually([&] { return tier_->list()->empty(); }));
  EXPECT_EQ(found(*store_, keys_), 0u);
  EXPECT_EQ(told_of(), 1) << "once";
}

TEST_F(StoreRemovalTest, WhoseManifestCannotBeReadNowIsToldOfLater) {
  unreadable_ = true;
  open_and_remove();
  EXPECT_EQ(told_of(), 0);
  failing_ = unreadable_ = false;
  virtual_clock_.advance(6);
  EXPECT_TRUE(eventually([&] { return tier_->list()->empty(); }));
  EXPECT_EQ(told_of(), 1);
}

TEST_F(StoreRemovalTest, WhatIsSavedAgainBeforeItCouldBeRemovedStays) {
  open_and_remove();
  const Kv kv(keys_);
  const auto save = store_->save(keys_, kv.readable()).value();
  ASSERT_TRUE(eventually([&] { return save->done(); })) << "which does not wait for the removal";
  ASSERT_TRUE(save->wait());
  ASSERT_TRUE(store_->flush());
  failing_ = false;
  virtual_clock_.advance(6);
  EXPECT_FALSE(eventually([&] { return tier_->list()->empty(); }, 20));
  EXPECT_EQ(load_all(*store_, keys_, {.needs = {.tiers_excluded = 1}}), 16u);
  EXPECT_EQ(store_->remove(keys_), 16u);
  ASSERT_TRUE(store_->flush());
  EXPECT_TRUE(tier_->list()->empty());
}

// The clock stands: whoever waited for the removal to end would wait for ever.
TEST_F(StoreOutageTest, WhatWasSavedAgainBeforeItCouldBeRemovedOthersMaySaveToo) {
  const auto keys = chain_of(1, 16);
  std::atomic<bool> failing = true, unreadable = false;
  const auto faulty = [&](Faults faults, const Clock& clock) {
    StoreTier disk = disk_tier(folder_.path(), clock);
    disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), clock);
    return tiers_of(std::move(disk));
  };
  const auto one = open(faulty({.fail_remove = [&](std::uint64_t) { return failing.load(); }}, clock_));
  ASSERT_TRUE(save_all(*one, keys));
  const VirtualClock virtual_clock;
  auto tiers = faulty({.fail_read = [&](std::uint64_t) { return unreadable.load(); }}, virtual_clock);
  const auto other = Store::open(small_options(), std::move(tiers), virtual_clock).value();
  ASSERT_EQ(one->remove(keys), 16u);
  ASSERT_TRUE(one->flush());
  (void)other->check_integrity();  // looks what others did
  ASSERT_EQ(other->lookup(keys).blocks, 0u);
  failing = false;
  ASSERT_TRUE(save_all(*one, keys));
  ASSERT_TRUE(one->flush());
  (void)other->check_integrity();
  unreadable = true;
  ASSERT_EQ(load_all(*other, keys), 0u);
  unreadable = false;
  ASSERT_EQ(other->lookup(keys).blocks, 0u) << "it is not asked for again at once";
  const Kv kv(keys);
  const auto save = other->save(keys, kv.readable()).value();
  EXPECT_TRUE(eventually([&] { return save->done(); }));
  EXPECT_EQ(load_all(*other, keys), 16u);
}

// Two save the same at once. One fails at its second part, when the other has written all that was not there.
TEST_F(StoreOutageTest, AFailedWriteLeavesWhatAnotherHasCompleted) {
  const auto shared = [&] { return shared_tier(folder_.path(), clock_); };
  const auto keys = chain_of(1, 16);
  const auto other = open(tiers_of(shared()));
  StoreTier failing = shared();
  Faults faults{.fail_write = [&](std::uint64_t nth) { return nth == 2 && save_all(*other, keys).has_value(); }};
  failing.tier = std::make_unique<FaultyTier>(std::move(failing.tier), std::move(faults), clock_);
  {
    const auto store = open(tiers_of(std::move(failing)));
    EXPECT_EQ(code_of(save_all(*store, keys)), ErrorCode::kIo);
    ASSERT_TRUE(store->flush());
  }
  const auto store = open(tiers_of(shared()));
  EXPECT_TRUE(eventually([&] { return store->lookup(keys).blocks == 16; }));
  EXPECT_EQ(load_all(*store, keys), 16u);
}

// The logs say that it is there, or nothing does.
TEST_F(StoreOutageTest, WhatCannotBeReadWhileTheIndexIsMadeAnewIsThereTheNextTime) {
  const std::vector<std::vector<BlockKey>> chains = {chain_of(1, 16), chain_of(1000, 16)};
  for (const char* lost : {"store/snapshot", "store"}) {
    {
      const auto store = open_disk();
      for (const auto& keys : chains) ASSERT_TRUE(save_all(*store, keys));
    }
    fs::remove_all(folder_.path() / lost);
    for (int dead = 0; dead < 10; ++dead) (void)IndexFolder::open(folder_.path());  // a snapshot of these is due
    {
      StoreTier disk = disk_tier(folder_.path(), clock_);
      disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), Faults{.fail_read = only(1)}, clock_);
      const auto store = open(tiers_of(std::move(disk)));
      (void)store->check_integrity();  // looks after the folder
      EXPECT_EQ(std::ranges::count(chains, 16u, [&](const auto& keys) { return store->lookup(keys).blocks; }),
                std::string_view(lost) == "store" ? 1 : 2);
    }
    const auto store = open_disk();
    for (const auto& keys : chains) EXPECT_EQ(load_all(*store, keys), 16u) << lost;
    EXPECT_TRUE(store->check_integrity());
  }
}

// No log says that they are there, and no store that opens can read them for a while.
TEST_F(StoreOutageTest, WhatCannotBeReadWhileTheIndexIsMadeAnewIsFoundOnceItCan) {
  const std::vector<std::vector<BlockKey>> chains = {chain_of(1, 16), chain_of(1000, 16)};
  {
    const auto store = open_disk();
    for (const auto& keys : chains) ASSERT_TRUE(save_all(*store, keys));
  }
  fs::remove_all(folder_.path() / "store");
  std::atomic<bool> unreadable = true;
  VirtualClock virtual_clock;
  const auto open_unreadable = [&] {
    StoreTier disk = disk_tier(folder_.path(), virtual_clock);
    Faults faults{.fail_read = [&](std::uint64_t) { return unreadable.load(); }};
    disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), virtual_clock);
    return Store::open(small_options(), tiers_of(std::move(disk)), virtual_clock).value();
  };
  const auto found_now = [&](Store& store) {
    return std::ranges::count(chains, 16u, [&](const auto& keys) { return store.lookup(keys).blocks; });
  };
  (void)open_unreadable()->check_integrity();  // looks after the folder
  EXPECT_TRUE(fs::exists(folder_.path() / "store/snapshot"));
  const auto store = open_unreadable();
  virtual_clock.advance(11);
  (void)store->check_integrity();
  EXPECT_EQ(found_now(*store), 0);
  unreadable = false;
  virtual_clock.advance(11);
  EXPECT_TRUE(eventually([&] { return found_now(*store) == 2; }));
  EXPECT_TRUE(store->check_integrity()) << "they are counted";
  for (const auto& keys : chains) EXPECT_EQ(load_all(*store, keys), 16u);
}

// Whoever removes it cannot yet: its manifest is there, and can be read again.
TEST_F(StoreOutageTest, WhatAnotherRemovesIsNotTakenForStoredOnceItCanBeRead) {
  const auto keys = chain_of(1, 16);
  ASSERT_TRUE(save_all(*open_disk(), keys));
  fs::remove_all(folder_.path() / "store");
  std::atomic<bool> unreadable = true;
  VirtualClock virtual_clock;
  const auto open_faulty = [&](Faults faults) {
    StoreTier disk = disk_tier(folder_.path(), virtual_clock);
    disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), virtual_clock);
    return Store::open(small_options(), tiers_of(std::move(disk)), virtual_clock).value();
  };
  const auto store = open_faulty({.fail_read = [&](std::uint64_t) { return unreadable.load(); }});
  (void)store->check_integrity();  // looks after the folder: its snapshot says what could not be read
  ASSERT_TRUE(fs::exists(folder_.path() / "store/snapshot"));
  const auto other = open_faulty({.fail_remove = after(0)});
  (void)other->check_integrity();
  ASSERT_EQ(other->lookup(keys).blocks, 16u);
  ASSERT_EQ(other->remove(keys), 16u);
  ASSERT_TRUE(other->flush());
  (void)store->check_integrity();
  (void)store->take_events(100);
  unreadable = false;
  virtual_clock.advance(11);
  (void)store->check_integrity();
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  EXPECT_TRUE(std::ranges::none_of(store->take_events(100),
                                   [](const StoreEvent& event) { return event.kind == StoreEvent::Kind::kStored; }));
}

}  // namespace
}  // namespace shale::testing
