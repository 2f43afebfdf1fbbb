// Several stores, in this process and others, on one folder and on one shared tier; processes that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "extents/index_folder.h"
#include "extents/store_tiers.h"
#include "store/store_fixture.h"
#include "support/child_process.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

constexpr std::uint64_t kCapacity = 3 << 20;
constexpr std::uint32_t kExtentBlocks = 64;

std::vector<BlockKey> chain_of_some_length(std::uint32_t number) {
  return chain_of(static_cast<std::int32_t>(1000 * (number + 1)), 8 + number % 5 * 16);
}

std::unique_ptr<Store> open_on(const std::filesystem::path& folder, const Clock& clock,
                               std::uint64_t capacity = kUnlimited) {
  return Store::open(small_options(), tiers_of(disk_tier(folder, clock, capacity)), clock).value();
}

TEST(StoreProcesses, WhatOneSavesAnotherThatWasThereBeforeFinds) {
  const TemporaryFolder folder;
  const RealClock clock;
  const auto one = open_on(folder.path(), clock);
  const auto other = open_on(folder.path(), clock);
  const auto keys = chain_of(1, 100);
  ASSERT_TRUE(save_all(*one, keys));
  EXPECT_TRUE(eventually_beside_others([&] { return other->lookup(keys).blocks == 100; }));
  EXPECT_EQ(load_all(*other, keys), 100u);
  (void)one->remove(keys);
  EXPECT_TRUE(eventually_beside_others([&] { return other->lookup(keys).blocks == 0; }));
}

TEST(StoreProcesses, ASharedTierIsAskedBehindPending) {
  const TemporaryFolder folder;
  const RealClock clock;
  const auto open = [&] {
    return Store::open(small_options(), tiers_of(memory_tier(clock), shared_tier(folder.path(), clock)), clock).value();
  };
  const auto one = open(), other = open();
  const auto keys = chain_of(1, 150);
  EXPECT_TRUE(other->lookup(keys).pending);
  EXPECT_TRUE(eventually_beside_others([&] { return !other->lookup(keys).pending; }))
      << "it is not there, and that is known";
  ASSERT_TRUE(save_all(*one, keys));
  ASSERT_TRUE(one->flush());
  EXPECT_TRUE(eventually_beside_others([&] { return other->lookup(keys).blocks == 150; }));
  EXPECT_EQ(other->stats().discovered_extents, 3u);
  EXPECT_EQ(load_all(*other, keys), 150u);
}

TEST(StoreProcesses, UrlsNameTiersWithTheirSharing) {
  const TemporaryFolder folder;
  const RealClock clock;
  const std::string file = "file://" + (folder.path() / "a").string() + "?size=10MB&throttle=1GB/s,1us&direct_io=off";
  const std::string dir = "dir://" + (folder.path() / "b").string();
  auto tiers = open_store_tiers({"memory:?size=1MB", file, dir}, clock);
  ASSERT_TRUE(tiers.has_value()) << tiers.error().message;
  ASSERT_EQ(tiers->size(), 3u);
  EXPECT_TRUE((*tiers)[0].folder.empty() && !(*tiers)[0].shared);
  EXPECT_EQ((*tiers)[1].folder, folder.path() / "a");
  EXPECT_TRUE((*tiers)[2].shared);
  const auto other = open_store_tiers({file}, clock);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE((*other)[0].tier->read_only()) << "both may write";
  const auto store = Store::open(small_options(), std::move(*tiers), clock).value();
  ASSERT_TRUE(save_all(*store, chain_of(1, 20)));
  EXPECT_EQ(load_all(*store, chain_of(1, 20)), 20u);
  EXPECT_EQ(code_of(open_store_tiers({"nothing:"}, clock)), ErrorCode::kInvalidArgument);
}

TEST(StoreProcesses, APinHoldsForAllWhileItsProcessLives) {
  const TemporaryFolder folder;
  const RealClock clock;
  const auto leader = open_on(folder.path(), clock, kCapacity / 4);
  const auto other = open_on(folder.path(), clock, kCapacity / 4);
  const auto keys = chain_of(1, 16);
  ASSERT_TRUE(save_all(*leader, keys));
  ASSERT_TRUE(eventually_beside_others([&] { return other->pin(keys) == 16; }));
  ASSERT_TRUE(other->flush());
  (void)leader->check_integrity();  // looks what others did
  for (std::uint32_t c = 0; c < 30; ++c) {
    const Status saved = save_all(*leader, chain_of_some_length(c));
    ASSERT_TRUE(saved || saved.error().code == ErrorCode::kFull) << "others may be worth more";
  }
  EXPECT_GT(leader->stats().tiers[0].removed, 0u);
  EXPECT_EQ(load_all(*leader, keys), 16u);
}

// It has its descriptors.
TEST(StoreProcesses, AForkedChildHoldsTheLocksOfItsParent) {
  const TemporaryFolder folder;
  auto leader = IndexFolder::open(folder.path()).value();
  ASSERT_TRUE(leader->lead());
  const pid_t child = fork();
  if (child == 0) {
    end_with_parent();
    for (;;) pause();
  }
  leader.reset();
  const auto next = IndexFolder::open(folder.path()).value();
  EXPECT_FALSE(next->lead());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(next->lead());
}

// An engine's own blobs, such as the pages of a request that waits for room.
TEST(StoreProcesses, WhatTheOwnerKeptThereGoesWhenItDies) {
  const TemporaryFolder folder;
  const RealClock clock;
  const Hash128 object{1, 2};
  const auto open = [&](Tier*& disk) {
    auto tiers = tiers_of(disk_tier(folder.path(), clock, kCapacity));
    disk = tiers[0].tier.get();
    return Store::open(small_options(), std::move(tiers), clock).value();
  };
  int wire[2];
  ASSERT_EQ(pipe(wire), 0);
  const pid_t child = fork();
  if (child == 0) {
    end_with_parent();
    Tier* disk = nullptr;
    const auto store = open(disk);
    char told = 0;
    while (read(wire[0], &told, 1) != 1) continue;
    if (!store->begin_own(0, object, 3 << 16)) _exit(1);
    for (std::uint32_t part = 0; part < 3; ++part) {
      (void)disk->write({object, part}, std::make_shared<AlignedBuffer>(1 << 16))->wait();
    }
    for (;;) pause();
  }
  Tier* disk = nullptr;
  const auto store = open(disk);
  ASSERT_EQ(write(wire[1], "!", 1), 1);
  EXPECT_TRUE(eventually_beside_others([&] { return disk->parts(object).value().size() == 3; }));
  EXPECT_TRUE(eventually_beside_others([&] { return disk->used_bytes() == 3 << 16; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const int end : wire) close(end);
  EXPECT_TRUE(eventually_beside_others([&] { return disk->parts(object).value().empty() && disk->used_bytes() == 0; }));
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

// It may be refused: only what is there counts, whenever that is looked at.
TEST(StoreProcesses, WhatTheOwnerKeepsThereCountsOnceItIsThere) {
  const TemporaryFolder folder;
  const RealClock clock;
  const Hash128 object{1, 2};
  auto tiers = tiers_of(disk_tier(folder.path(), clock, kCapacity));
  Tier& disk = *tiers[0].tier;
  const auto store = Store::open(small_options(), std::move(tiers), clock).value();
  const auto used = [&] {
    EXPECT_TRUE(store->check_integrity());  // looks
    return disk.used_bytes();
  };
  const std::uint64_t bytes = disk.stored_bytes(1 << 16);
  ASSERT_TRUE(store->begin_own(0, object, bytes));
  EXPECT_EQ(used(), 0u);
  ASSERT_TRUE(disk.write({object, 0}, std::make_shared<AlignedBuffer>(1 << 16))->wait());
  EXPECT_EQ(used(), bytes);
  store->written_own(0, object);
  EXPECT_EQ(used(), bytes);
  store->end_own(0, object);
  EXPECT_TRUE(eventually_beside_others([&] { return disk.parts(object)->empty() && used() == 0; }));
}

// It wrote all of it, and died before it could say so: nobody else may have that room, whoever opens the folder.
TEST(StoreProcesses, WhatADeadStoreWasWritingKeepsItsRoom) {
  const TemporaryFolder folder;
  const RealClock clock;
  const auto keys = chain_of(1, 16);
  ASSERT_TRUE(save_all(*open_on(folder.path(), clock), keys));
  IndexRecord writing{.type = IndexRecord::Type::kWriting};
  (void)IndexFolder::open(folder.path()).value()->load([&](const IndexRecord& record) {
    if (record.type != IndexRecord::Type::kStored) return;
    writing.name = record.facts.name;
    writing.tag = record.facts.tags.front();
    writing.bytes = record.facts.bytes;
  });
  ASSERT_GT(writing.bytes, 0u);
  std::filesystem::remove_all(folder.path() / "store");
  ASSERT_TRUE(IndexFolder::write_snapshot_file(folder.path(), [](const IndexFolder::Visit&) {}));
  {
    const auto dead = IndexFolder::open(folder.path()).value();
    dead->append(writing);
    ASSERT_TRUE(dead->flush());
  }
  std::atomic<bool> failing = true;
  VirtualClock virtual_clock;
  auto tiers = tiers_of(disk_tier(folder.path(), virtual_clock, kCapacity));
  const Faults faults{.fail_read = [&](std::uint64_t) { return failing.load(); }};
  tiers[0].tier = std::make_unique<FaultyTier>(std::move(tiers[0].tier), faults, virtual_clock);
  const Tier& disk = *tiers[0].tier;
  const auto store = Store::open(small_options(), std::move(tiers), virtual_clock).value();
  for (int looks = 0; looks < 3; ++looks) {
    virtual_clock.advance(11);
    (void)store->check_integrity();  // looks at it
  }
  EXPECT_EQ(disk.used_bytes(), writing.bytes) << "as long as nobody knows what is there";
  failing = false;
  virtual_clock.advance(11);
  EXPECT_TRUE(eventually_beside_others([&] { return store->lookup(keys).blocks == 16; }));
  EXPECT_EQ(disk.used_bytes(), writing.bytes);
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

// The leader died before it looked at what two had written and removed at once. Whoever leads next knows of it, though
// the dead one's log may be gone.
TEST(StoreProcesses, WhatADeadLeaderDidNotRemoveTheNextOneDoes) {
  const TemporaryFolder folder;
  const RealClock clock;
  auto leader = IndexFolder::open(folder.path()).value();
  ASSERT_TRUE(leader->lead());
  const auto store = open_on(folder.path(), clock);
  const auto keys = chain_of(1, 16);
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  IndexRecord settled{.type = IndexRecord::Type::kSettled};
  leader->follow([&](const IndexRecord& record) {
    if (record.type != IndexRecord::Type::kStored) return;
    settled.name = record.facts.name;
    settled.tag = record.facts.tags.front();
  });
  for (const auto& part : blob_files(folder.path(), false)) std::filesystem::remove(part);
  leader->append(settled);  // as who removed them while the manifest was being written
  ASSERT_TRUE(leader->flush());
  EXPECT_TRUE(eventually_beside_others([&] { return store->lookup(keys).blocks == 0; }));
  EXPECT_EQ(blob_files(folder.path(), true).size(), 1u) << "it is the leader's to remove";
  leader.reset();
  EXPECT_TRUE(eventually_beside_others([&] { return blob_files(folder.path(), true).empty(); }));
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

// Saves and loads until killed.
[[noreturn]] void churn(const std::filesystem::path& folder, unsigned seed) {
  end_with_parent();
  const RealClock clock;
  const auto store = open_on(folder, clock, kCapacity);
  std::mt19937 random(seed);
  for (;;) {
    const auto keys = chain_of_some_length(static_cast<std::uint32_t>(random() % 40));
    if (random() % 3 != 0) (void)save_all(*store, keys);
    if (random() % 3 == 0) (void)load_all(*store, keys);
    if (random() % 8 == 0) (void)store->remove(keys);
    if (::testing::Test::HasFailure()) _exit(1);
  }
}

pid_t start_churn(const std::filesystem::path& folder, unsigned seed) {
  const pid_t child = fork();
  if (child == 0) churn(folder, seed);
  return child;
}

// Three at a time; SHALE_STORE_KILLS sets how many are killed, 100 for a long run.
TEST(StoreProcesses, KilledAtRandomTheyLeaveNoWrongByteAndNoLostRoom) {
  const char* asked = std::getenv("SHALE_STORE_KILLS");
  const int kills = asked ? std::atoi(asked) : 9;
  const TemporaryFolder folder;
  std::mt19937 random(5);
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 3; ++i) children.push_back(start_churn(folder.path(), i));
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 250));
    pid_t& child = children[random() % children.size()];
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "it found a wrong byte, or crashed";
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    child = start_churn(folder.path(), static_cast<unsigned>(100 + kill_number));
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  const RealClock clock;
  const auto store = open_on(folder.path(), clock, kCapacity);
  Status sound;
  EXPECT_TRUE(eventually_beside_others([&] { return (sound = store->check_integrity()).has_value(); }))
      << sound.error().message;
  std::uint32_t found = 0;
  for (std::uint32_t number = 0; number < 40; ++number) {
    const auto keys = chain_of_some_length(number);
    const std::uint32_t blocks = store->lookup(keys).blocks;
    EXPECT_EQ(load_all(*store, keys), blocks);
    found += blocks;
  }
  EXPECT_GT(found, 0u);
  EXPECT_EQ(store->stats().damaged_chunks, 0u);
  EXPECT_EQ(store->stats().stale_extents, 0u);
  const std::uint64_t extent_bytes = small_geometry().bytes(kExtentBlocks * kBlockTokens) + (64 << 10);
  EXPECT_LE(store->stats().tiers[0].bytes, kCapacity + 3 * extent_bytes) << "by one extent a process at most";
}

}  // namespace
}  // namespace shale::testing
