// Failing devices, flipped bits, vanished files: a counted miss of what is concerned, never wrong bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

class StoreFaultsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(std::vector<StoreTier> tiers) {
    return Store::open(small_options(), std::move(tiers), clock_).value();
  }
  std::unique_ptr<Store> open_disk() { return open(tiers_of(disk_tier(folder_.path(), clock_))); }
  StoreTier faulty(Faults faults, std::uint64_t capacity = kUnlimited) {
    return {.tier = std::make_unique<FaultyTier>(make_memory_tier(capacity, clock_), std::move(faults), clock_)};
  }
  StoreTier failing_disk(const std::atomic<bool>& failing, const Clock& clock, std::uint64_t capacity = kUnlimited) {
    StoreTier disk = disk_tier(folder_.path(), clock, capacity);
    Faults faults{.fail_read = [&failing](std::uint64_t) { return failing.load(); }};
    disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), clock);
    return disk;
  }
  std::vector<fs::path> parts() const { return blob_files(folder_.path(), false); }
  static void flip(const fs::path& path, std::uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }

  TemporaryFolder folder_;
  RealClock clock_;
};

TEST_F(StoreFaultsTest, AFlippedBitCostsItsChunkAndIsNotServedAgain) {
  const auto keys = chain_of(1, 16);  // one extent of four chunks
  {
    const auto store = open_disk();
    ASSERT_TRUE(save_all(*store, keys));
  }
  ASSERT_FALSE(parts().empty());
  flip(parts().front(), fs::file_size(parts().front()) / 3);
  const auto store = open_disk();
  EXPECT_EQ(store->lookup(keys).blocks, 16u);
  Kv kv(16);
  {
    const auto load = store->load(keys, kv.view()).value();
    ASSERT_TRUE(load->wait()) << "the others arrive";
    ASSERT_EQ(load->failures().size(), 1u);
    EXPECT_EQ(load->failures()[0].error.code, ErrorCode::kCorrupt);
    EXPECT_EQ(load->failures()[0].blocks, 4u);
    EXPECT_EQ(load->failures()[0].first_block % 4, 0u);
    for (std::uint32_t b = 0; b < 16; ++b) {
      const bool failed = b - load->failures()[0].first_block < 4;
      EXPECT_TRUE(failed || kv.holds(b, keys[b]));
    }
    EXPECT_EQ(store->lookup(keys).blocks, load->failures()[0].first_block);
  }
  EXPECT_EQ(store->stats().damaged_chunks, 1u);
  ASSERT_TRUE(save_all(*store, keys));
  EXPECT_EQ(load_all(*store, keys), 16u);
}

// Nothing of it is found from the chain's start any more, and yet it is there.
TEST_F(StoreFaultsTest, WhoseFirstChunkIsDamagedIsRemovedAllTheSame) {
  const auto keys = chain_of(1, 16);
  const auto store = open_disk();
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  flip(parts().front(), 10);
  Kv kv(16);
  const auto load = store->load(keys, kv.view()).value();
  ASSERT_TRUE(load->wait());
  ASSERT_EQ(load->failures().size(), 1u);
  ASSERT_EQ(load->failures()[0].first_block, 0u);
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  EXPECT_EQ(store->inspect(keys).size(), 1u);
  EXPECT_EQ(store->remove(std::span(keys).first(15)), 0u);
  EXPECT_EQ(store->remove(keys), 16u);
  EXPECT_TRUE(store->inspect(keys).empty());
  ASSERT_TRUE(store->flush());
  EXPECT_TRUE(parts().empty());
}

TEST_F(StoreFaultsTest, DamageThatTwoFindAtOnceIsCountedOnce) {
  const auto keys = chain_of(1, 16);
  {
    const auto store = open_disk();
    ASSERT_TRUE(save_all(*store, keys));
  }
  flip(parts().front(), 10);
  const auto store = open_disk();
  Kv one(16), other(16);
  const auto first = store->load(keys, one.view()).value(), second = store->load(keys, other.view()).value();
  for (const auto* load : {&first, &second}) {
    ASSERT_TRUE((*load)->wait());
    EXPECT_EQ((*load)->failures().size(), 1u);
  }
  EXPECT_EQ(store->stats().damaged_chunks, 1u);
}

// A load that began before what it reads was removed says nothing of what was saved in its place since.
TEST_F(StoreFaultsTest, DamageOfWhatWasReplacedMeanwhileIsNotTheNewCopys) {
  for (const bool damaged : {true, false}) {
    std::atomic<bool> failing = false;
    const auto fails = [&failing](std::uint64_t) { return failing.load(); };
    const auto store = open(tiers_of(faulty(damaged ? Faults{.corrupt_read = fails} : Faults{.fail_read = fails})));
    const auto keys = chain_of(1, 16);
    ASSERT_TRUE(save_all(*store, keys));
    failing = true;
    Kv kv(16);
    const auto load = store->load(keys, kv.view()).value();  // reads at once, and is not polled yet
    failing = false;
    EXPECT_EQ(store->remove(keys), 16u);
    ASSERT_TRUE(store->flush());
    ASSERT_TRUE(save_all(*store, keys));
    (void)load->wait();
    ASSERT_FALSE(load->failures().empty());
    EXPECT_EQ(load->failures()[0].error.code, damaged ? ErrorCode::kCorrupt : ErrorCode::kIo);
    EXPECT_EQ(store->lookup(keys).blocks, 16u);
    EXPECT_EQ(load_all(*store, keys), 16u);
  }
}

// The store knows the extent still, because somebody reads it.
TEST_F(StoreFaultsTest, WhatWasDamagedIsFoundWhenItIsSavedAgain) {
  std::atomic<bool> failing = true;
  const auto store = open(tiers_of(faulty({.corrupt_read = [&failing](std::uint64_t) { return failing.load(); }})));
  const auto keys = chain_of(1, 16);
  const StoreHints hints{.run = {1, 2}};
  ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(load_all(*store, keys), 8u) << "the third chunk is damaged";
  failing = false;
  Kv kv(16);
  const auto reading = store->load(keys, kv.view()).value();
  EXPECT_EQ(reading->blocks(), 8u);
  EXPECT_EQ(store->remove_run(hints.run), 1u);
  ASSERT_TRUE(store->flush());
  ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(load_all(*store, keys), 16u);
  EXPECT_EQ(store->stats().extents, 1u) << "the same one";
  EXPECT_TRUE(store->check_integrity());
}

TEST_F(StoreFaultsTest, ASoundCopyElsewhereIsFoundThoughAnotherIsDamaged) {
  const auto keys = chain_of(1, 16);
  const fs::path one = folder_.path() / "one", other = folder_.path() / "other";
  for (const fs::path& folder : {one, other}) {
    const auto store = open(tiers_of(disk_tier(folder, clock_)));
    ASSERT_TRUE(save_all(*store, keys));
  }
  const fs::path part = blob_files(one, false).front();
  flip(part, fs::file_size(part) / 3);
  EXPECT_EQ(load_all(*open(tiers_of(disk_tier(one, clock_))), keys), 4u);
  const auto store = open(tiers_of(disk_tier(one, clock_), disk_tier(other, clock_)));
  EXPECT_EQ(store->lookup(keys).blocks, 16u);
  (void)load_all(*store, keys);  // from the faster one, which is found out again, and goes
  EXPECT_EQ(load_all(*store, keys), 16u);
  EXPECT_EQ(store->lookup(keys).tier, 1u);
}

// A flipped bit in what is most important, and the rest cannot be read now: only the chunk with the bit is damaged.
TEST_F(StoreFaultsTest, EachChunkFailsForItsOwnReason) {
  StoreTier disk = disk_tier(folder_.path(), clock_);
  const Faults faults{.fail_read = only(2), .corrupt_read = only(1)};
  disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), faults, clock_);
  const auto store = open(tiers_of(std::move(disk)));
  const auto keys = chain_of(1, 16);
  StoreHints hints;
  hints.method = Method::parse("keydiff+int8").value();
  ASSERT_TRUE(save_all(*store, keys, hints));
  Kv kv(16);
  const auto load = store->load(keys, kv.view(), {.needs = {.exact = false}}).value();
  EXPECT_FALSE(load->wait());
  std::uint32_t damaged = 0, unread = 0;
  for (const StoreFailure& failure : load->failures()) {
    const bool is_damaged = failure.error.code == ErrorCode::kCorrupt;
    EXPECT_TRUE(is_damaged || failure.error.code == ErrorCode::kIo) << failure.error.message;
    (is_damaged ? damaged : unread) += failure.blocks;
  }
  EXPECT_EQ(damaged, 4u);
  EXPECT_EQ(unread, 12u);
  EXPECT_EQ(store->stats().damaged_chunks, 1u);
  EXPECT_EQ(store->stats().tiers[0].blocks_loaded, store->stats().tenants[0].blocks_loaded);
  EXPECT_EQ(store->stats().tiers[0].bytes_read, 0u) << "nothing came";
  ASSERT_TRUE(store->flush());
  EXPECT_FALSE(parts().empty()) << "what cannot be read now may be sound";
}

TEST_F(StoreFaultsTest, WhatIsDamagedIsNotCopiedToAFasterTier) {
  const auto keys = chain_of(1, 16);
  {
    const auto store = open_disk();
    ASSERT_TRUE(save_all(*store, keys));
  }
  flip(parts().front(), fs::file_size(parts().front()) / 3);
  StoreTier disk = disk_tier(folder_.path(), clock_);
  disk.tier = make_throttled_tier(std::move(disk.tier), parse_throttle("1GB/s,100ms").value(), clock_);
  const auto store = open(tiers_of(memory_tier(clock_), std::move(disk)));
  store->touch(keys);  // so slow a tier's is wanted in memory
  ASSERT_TRUE(eventually([&] { return store->stats().damaged_chunks > 0; }));
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->stats().damaged_chunks, 1u);
  EXPECT_EQ(store->stats().tiers[0].extents, 0u);
  EXPECT_EQ(store->lookup(keys).blocks, 4u) << "the chunk before the damaged one";
  EXPECT_EQ(load_all(*store, keys), 4u);
}

TEST_F(StoreFaultsTest, DamageIsKnownToTheNextStore) {
  const auto keys = chain_of(1, 16);
  {
    const auto store = open_disk();
    ASSERT_TRUE(save_all(*store, keys));
  }
  flip(parts().front(), 10);
  std::uint32_t left = 0;
  {
    const auto store = open_disk();
    EXPECT_LT(left = load_all(*store, keys), 16u);
  }
  EXPECT_EQ(open_disk()->lookup(keys).blocks, left);
}

TEST_F(StoreFaultsTest, WhatVanishedIsAMissAndForgotten) {
  const auto keys = chain_of(1, 16);
  const auto store = open_disk();
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  fs::remove_all(folder_.path() / "objects");
  EXPECT_EQ(store->lookup(keys).blocks, 16u);
  Kv kv(16);
  const auto load = store->load(keys, kv.view()).value();
  EXPECT_EQ(code_of(load->wait()), ErrorCode::kNotFound);
  EXPECT_EQ(store->stats().stale_extents, 1u);
  EXPECT_EQ(store->stats().damaged_chunks, 0u);
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
}

TEST_F(StoreFaultsTest, AManifestThatIsDamagedCostsItsExtent) {
  const auto keys = chain_of(1, 16);
  {
    const auto store = open_disk();
    ASSERT_TRUE(save_all(*store, keys));
  }
  for (const fs::path& manifest : blob_files(folder_.path(), true)) flip(manifest, 100);
  const auto store = open_disk();
  EXPECT_EQ(load_all(*store, keys), 0u);
  EXPECT_EQ(store->stats().damaged_chunks, 4u);
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  ASSERT_TRUE(store->flush());
  ASSERT_TRUE(save_all(*store, keys));
  EXPECT_EQ(load_all(*store, keys), 16u);
}

TEST_F(StoreFaultsTest, TheNextTierTakesWhatOneRefuses) {
  for (const Faults& faults : {Faults{.fail_write = every(1)}, Faults{.full = every(1)}}) {
    const auto store = open(tiers_of(faulty(faults), memory_tier(clock_)));
    const auto keys = chain_of(1, 100);
    ASSERT_TRUE(save_all(*store, keys));
    EXPECT_EQ(store->lookup(keys).tier, 1u);
    EXPECT_EQ(load_all(*store, keys), 100u);
  }
  const auto store = open(tiers_of(faulty({.fail_write = every(1)})));
  EXPECT_EQ(code_of(save_all(*store, chain_of(1, 10))), ErrorCode::kIo);
  EXPECT_EQ(store->lookup(chain_of(1, 10)).blocks, 0u);
  EXPECT_EQ(store->stats().extents_failed, 1u);
}

TEST_F(StoreFaultsTest, WhatAFailedWriteLeftIsRemovedBehindTheCalls) {
  std::atomic<bool> open_again = false;
  StoreTier disk = disk_tier(folder_.path(), clock_);
  Faults faults{.fail_write = only(2), .open = &open_again};
  disk.tier = std::make_unique<FaultyTier>(std::move(disk.tier), std::move(faults), clock_);
  StoreOptions options = small_options();
  options.threads = 0;  // so that the caller's does all but what may wait for the tier
  const auto store = Store::open(options, tiers_of(std::move(disk), memory_tier(clock_)), clock_).value();
  const auto keys = chain_of(1, 10);
  ASSERT_TRUE(save_all(*store, keys)) << "while nothing can be removed";
  EXPECT_EQ(store->lookup(keys).tier, 1u);
  EXPECT_FALSE(parts().empty());
  open_again = true;
  open_again.notify_all();
  ASSERT_TRUE(store->flush());
  EXPECT_TRUE(parts().empty());
  EXPECT_TRUE(store->check_integrity());
}

// Its files are there still, and the next store finds them: what took their place would be too much.
TEST_F(StoreFaultsTest, WhatCannotBeReadKeepsItsRoom) {
  constexpr std::uint64_t kRoom = 320 << 10;
  std::atomic<bool> failing = false;
  {
    const auto store = open(tiers_of(failing_disk(failing, clock_, kRoom)));
    for (int i = 1; i <= 4; ++i) ASSERT_TRUE(save_all(*store, chain_of(1000 * i, 16)));
    failing = true;
    for (int i = 1; i <= 4; ++i) EXPECT_EQ(load_all(*store, chain_of(1000 * i, 16)), 0u);
    failing = false;
    EXPECT_EQ(store->lookup(chain_of(1000, 16)).blocks, 0u);
    for (int i = 5; i <= 16; ++i) {
      (void)save_all(*store, chain_of(1000 * i, 16));
      ASSERT_TRUE(store->check_integrity());
    }
    EXPECT_EQ(store->remove(chain_of(1000, 16)), 16u) << "what cannot be read can be removed";
  }
  const auto store = open(tiers_of(disk_tier(folder_.path(), clock_, kRoom)));
  EXPECT_EQ(store->lookup(chain_of(1000, 16)).blocks, 0u);
  EXPECT_EQ(load_all(*store, chain_of(2000, 16)), 16u);
  EXPECT_LE(store->stats().tiers[0].bytes, kRoom);
}

TEST_F(StoreFaultsTest, WhatCouldNotBeReadIsFoundAgainLater) {
  const VirtualClock clock;
  std::atomic<bool> failing = false;
  const auto keys = chain_of(1, 16);
  const auto store = Store::open(small_options(), tiers_of(failing_disk(failing, clock)), clock).value();
  ASSERT_TRUE(save_all(*store, keys));
  failing = true;
  EXPECT_EQ(load_all(*store, keys), 0u);
  failing = false;
  clock.sleep_until_s(clock.now_s() + 9);
  EXPECT_FALSE(eventually([&] { return store->lookup(keys).blocks > 0; }, 30)) << "not at once";
  clock.sleep_until_s(clock.now_s() + 2);
  EXPECT_TRUE(eventually([&] { return store->lookup(keys).blocks == 16; }));
  EXPECT_EQ(load_all(*store, keys), 16u);
}

// What was removed and saved again is looked at when a store opens, and is no rest of anything because it cannot be.
TEST_F(StoreFaultsTest, WhatCannotBeReadAtFirstIsNotRemoved) {
  const auto keys = chain_of(1, 16);
  {
    const auto store = open_disk();
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(save_all(*store, keys));
      ASSERT_TRUE(store->flush());
      if (round == 0) {
        EXPECT_EQ(store->remove(keys), 16u);
      }
      ASSERT_TRUE(store->flush());
    }
  }
  std::atomic<bool> failing = true;
  const auto store = open(tiers_of(failing_disk(failing, clock_)));
  EXPECT_FALSE(eventually([&] { return parts().empty(); }, 50));
  failing = false;
  EXPECT_TRUE(store->check_integrity());
  EXPECT_EQ(load_all(*store, keys), 16u);
}

// Whatever a device does, what comes back as loaded is right.
TEST_F(StoreFaultsTest, ReadsThatFailNowAndThenNeverBringWrongBytes) {
  for (const Faults& faults : {Faults{.fail_read = every(3)}, Faults{.corrupt_read = every(3)}}) {
    const auto store = open(tiers_of(faulty(faults)));
    std::uint32_t loaded = 0;
    for (int round = 0; round < 12; ++round) {
      const auto keys = chain_of(1000 * (round % 3 + 1), 80);
      ASSERT_TRUE(save_all(*store, keys));
      loaded += load_all(*store, keys);
    }
    EXPECT_GT(loaded, 0u);
    const Status sound = store->check_integrity();
    EXPECT_TRUE(sound) << sound.error().message;
  }
}

TEST_F(StoreFaultsTest, WhatCannotBeReadIsNotDecoded) {
  std::atomic<bool> failing = false;
  const auto keys = chain_of(1, 16);
  const auto store = open(tiers_of(failing_disk(failing, clock_)));
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_EQ(load_all(*store, keys), 16u) << "its manifest is known from now on";
  failing = true;
  Kv kv(keys.size());
  const auto load = store->load(keys, kv.view()).value();
  EXPECT_FALSE(load->wait());
  EXPECT_EQ(load->decoded_bytes(), 0u);
}

TEST_F(StoreFaultsTest, WhatFitsNowhereIsRefused) {
  const auto store = open(tiers_of(memory_tier(clock_, 8192)));
  EXPECT_EQ(code_of(save_all(*store, chain_of(1, 100))), ErrorCode::kFull);
}

}  // namespace
}  // namespace shale::testing
