// Stores that go on without a folder until it can be opened, and those whose folder is removed under them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "store/store_fixture.h"
#include "support/eventually.h"
#include "tier/tier_wrapper.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

class StoreLateTest : public ::testing::Test {
 protected:
  // Without threads: everything happens in work().
  std::unique_ptr<Store> open(bool late) {
    StoreTier disk = disk_tier(folder_.path(), clock_);
    disk.late = late;
    StoreOptions options = small_options();
    return Store::open(options, tiers_of(memory_tier(clock_), std::move(disk)), clock_).value();
  }
  std::unique_ptr<Store> open_other() {
    return Store::open(small_options(), tiers_of(disk_tier(folder_.path(), clock_)), clock_).value();
  }

  // Where the index should be lies something else.
  void block() {
    fs::rename(index(), folder_.path() / "index");
    std::ofstream(index()) << "no folder";
  }
  void unblock() {
    fs::remove(index());
    fs::rename(folder_.path() / "index", index());
  }
  fs::path index() const { return folder_.path() / "store"; }

  TemporaryFolder folder_;
  RealClock clock_;
};

TEST_F(StoreLateTest, AFolderThatCannotBeOpenedIsNoErrorAndComesBack) {
  const auto before = chain_of(1, 16), during = chain_of(100, 16), after = chain_of(200, 16);
  ASSERT_TRUE(save_all(*open_other(), before));
  block();
  EXPECT_FALSE(Store::open(small_options(), tiers_of(disk_tier(folder_.path(), clock_)), clock_)) << "not late";

  const auto store = open(true);
  const auto disk = [&] { return store->stats().tiers[1]; };
  EXPECT_NE(disk().trouble, "");
  EXPECT_EQ(disk().capacity_bytes, 0u);
  EXPECT_EQ(store->lookup(before).blocks, 0u);
  ASSERT_TRUE(save_all(*store, during));
  EXPECT_EQ(load_all(*store, during), 16u) << "from memory";
  EXPECT_EQ(disk().extents, 0u);

  unblock();
  ASSERT_TRUE(eventually([&] { return disk().trouble.empty(); }));
  EXPECT_EQ(disk().capacity_bytes, kUnlimited);
  EXPECT_EQ(load_all(*store, before), 16u);
  ASSERT_TRUE(save_all(*store, after));
  ASSERT_TRUE(store->flush());
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
  EXPECT_EQ(load_all(*open_other(), after), 16u) << "it lies on the disk, too";
}

// What was told in a log that somebody removed is told again, as far as it is true.
TEST_F(StoreLateTest, WhatLiesInAFolderThatWasMadeAgainIsFoundByOthers) {
  const auto lost = chain_of(1, 16), kept = chain_of(100, 16), fresh = chain_of(200, 16);
  const auto store = open_other();
  const auto other = open_other();
  ASSERT_TRUE(save_all(*store, lost));
  ASSERT_TRUE(eventually([&] { return other->lookup(lost).blocks == 16; }));
  fs::remove_all(folder_.path() / "objects");
  ASSERT_TRUE(save_all(*store, kept)) << "and its record is written to the log that is there";
  fs::remove_all(index());
  ASSERT_TRUE(save_all(*store, fresh));
  for (const auto& keys : {kept, fresh}) {
    EXPECT_TRUE(eventually([&] { return other->lookup(keys).blocks == 16; }));
    EXPECT_EQ(load_all(*other, keys), 16u);
    EXPECT_EQ(load_all(*open_other(), keys), 16u) << "nor does a third one miss it";
  }
  EXPECT_TRUE(eventually([&] { return store->lookup(lost).blocks == 0; })) << "it looked";
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

// As when a folder comes back, while what is being written to the one that stood in for it has its parts there.
TEST_F(StoreLateTest, WhatLiesByHalfInAFolderThatWasMadeAgainIsRemoved) {
  const auto halved = chain_of(1, 16), fresh = chain_of(200, 16);
  const auto store = open_other();
  ASSERT_TRUE(save_all(*store, halved));
  ASSERT_TRUE(store->flush());
  const std::vector<fs::path> manifests = blob_files(folder_.path(), true);
  ASSERT_EQ(manifests.size(), 1u);
  for (const fs::path& part : blob_files(folder_.path(), false)) fs::remove(part);
  fs::remove_all(index());
  ASSERT_TRUE(save_all(*store, fresh));
  EXPECT_TRUE(eventually([&] { return !fs::exists(manifests[0]); }));
  EXPECT_EQ(store->lookup(halved).blocks, 0u);
  EXPECT_EQ(load_all(*store, fresh), 16u);
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

// As a bounded one behind a network is at first.
class UncountedTier final : public TierWrapper {
 public:
  UncountedTier(std::unique_ptr<Tier> inner, const Clock& clock) : TierWrapper(std::move(inner), {}, clock) {}
  std::uint64_t capacity_bytes() const override { return 0; }
  bool counting() const override { return true; }

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double) override {
    return inner().read(id, range);
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double) override {
    return inner().write(id, std::move(bytes));
  }
};

TEST_F(StoreLateTest, ASaveWithoutRoomNamesTheTierThatIsStillBeingCounted) {
  StoreTier uncounted = memory_tier(clock_);
  uncounted.tier = std::make_unique<UncountedTier>(std::move(uncounted.tier), clock_);
  const auto store = Store::open(small_options(), tiers_of(std::move(uncounted)), clock_).value();
  const Status saved = save_all(*store, chain_of(1, 16));
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kFull);
  EXPECT_THAT(saved.error().message, ::testing::HasSubstr("; memory: what lies there is still being counted"));
}

TEST_F(StoreLateTest, AFolderThatFailsWhileItIsReadHoldsUpNoSave) {
  VirtualClock clock;
  std::atomic<std::uint64_t> lists = 0;
  std::atomic<bool> read = false;
  StoreTier disk = disk_tier(folder_.path(), clock);
  Faults faults{.fail_list = [&](std::uint64_t nth) {
    lists = nth;
    if (nth > 1) read.wait(false);
    return true;
  }};
  disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), clock);
  disk.late = true;
  StoreOptions options = small_options();
  options.threads = 0;
  options.placement.planner = "lru";  // which fills the first tier first
  const auto store = Store::open(options, tiers_of(std::move(disk), memory_tier(clock)), clock).value();
  ASSERT_EQ(lists, 1u);
  clock.advance(6);
  ASSERT_TRUE(eventually([&] { return lists == 2; }));
  const auto keys = chain_of(1, 16);
  const Kv kv(keys);
  const auto save = store->save(keys, kv.readable()).value();
  InlineExecutor executor;
  for (int works = 0; works < 50; ++works) store->work(executor, 1e-3);
  EXPECT_FALSE(save->done()) << "the folder looks open, and its log is not";
  read = true;
  read.notify_all();
  ASSERT_TRUE(eventually([&] {
    store->work(executor, 1e-3);
    return save->done();
  }));
  EXPECT_TRUE(save->wait());
  EXPECT_EQ(store->lookup(keys).tier, 1u);
  EXPECT_EQ(load_all(*store, keys), 16u);
}

// A tier that never answers holds up no other: neither what is stored nor what is told of it. By the store's threads.
class StoreHangTest : public StoreLateTest, public ::testing::WithParamInterface<unsigned> {};
TEST_P(StoreHangTest, HoldsUpNoOther) {
  std::atomic<bool> answers = false;
  StoreTier hanging{
      .tier = std::make_unique<FaultyTier>(make_memory_tier(kUnlimited, clock_), Faults{.open = &answers}, clock_),
      .shared = true};
  StoreOptions options = small_options();
  options.threads = GetParam();
  options.placement.planner = "lru";  // which fills the first tier first
  const auto keys = chain_of(1, 16);
  {
    const auto store =
        Store::open(options, tiers_of(disk_tier(folder_.path(), clock_), std::move(hanging)), clock_).value();
    EXPECT_TRUE(store->lookup(chain_of(500, 4)).pending) << "the other tier is being asked, and does not answer";
    const Kv kv(keys);
    const auto save = store->save(keys, kv.readable()).value();
    InlineExecutor executor;
    EXPECT_TRUE(eventually([&] {
      if (options.threads == 0) store->work(executor, 1e-3);
      return save->done();
    }));
    const Status saved = save->wait();
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_EQ(store->stats().tiers[0].extents, 1u);
    EXPECT_TRUE(eventually([&] { return load_all(*open_other(), keys) == 16; }));
    answers = true;
    answers.notify_all();
  }
}
INSTANTIATE_TEST_SUITE_P(Threads, StoreHangTest, ::testing::Values(0u, 1u));

}  // namespace
}  // namespace shale::testing
