// The directory tier's own promises: several writers, room that all of them count, what none of them will finish.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tier> open(std::uint64_t capacity_bytes = kUnlimited) const {
    return make_directory_tier(folder_.path(), capacity_bytes, clock_).value();
  }
  void age_all(std::chrono::hours by) const {
    for (const auto& file : fs::recursive_directory_iterator(folder_.path())) {
      if (file.is_regular_file()) fs::last_write_time(file, file.last_write_time() - by);
    }
  }

  TemporaryFolder folder_;
  RealClock clock_;
};

TEST_F(DirectoryTest, WritersShareWhatTheyStoreAndTheRoomForIt) {
  const auto one = open(1 << 20);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(one->write(id, blob_bytes(id, 600000))->wait());
  const auto other = open(1 << 20);
  EXPECT_TRUE(other->contains(id));
  EXPECT_TRUE(same_bytes(**other->read(id)->take(), *blob_bytes(id, 600000)));
  EXPECT_TRUE(other->write(id, blob_bytes(id, 600000))->wait());

  ASSERT_TRUE(other->write(blob_id(2, 0), blob_bytes(blob_id(2, 0), 300000))->wait());
  EXPECT_EQ(code_of(other->write(blob_id(3, 0), blob_bytes(blob_id(3, 0), 300000))->wait()), ErrorCode::kFull)
      << "what the first one stored counts";
  ASSERT_TRUE(one->remove(id));
  EXPECT_TRUE(other->write(blob_id(3, 0), blob_bytes(blob_id(3, 0), 300000))->wait()) << "room that it made counts";
}

// Refusing counts again what is stored; what is being written is not stored yet and has its room all the same.
TEST_F(DirectoryTest, CountingAgainForgetsNoReservation) {
  const auto tier = open(1 << 20);
  std::vector<std::shared_ptr<TierWrite>> writes;
  for (std::uint32_t part = 0; part < 40; ++part) {
    writes.push_back(tier->write(blob_id(1, part), blob_bytes(blob_id(1, part), 100000)));
  }
  std::uint64_t stored = 0;
  for (const auto& write : writes) stored += write->wait() ? tier->stored_bytes(100000) : 0;
  EXPECT_LE(stored, tier->capacity_bytes());
  EXPECT_EQ(tier->used_bytes(), stored) << "what was named while it was counted counts once when all is done";
  EXPECT_GT(stored, 0u);
}

TEST_F(DirectoryTest, AtRestEveryBlobCountsOnceHoweverItCame) {
  const auto tier = open(1 << 20);
  for (std::uint32_t round = 0; round < 30; ++round) {
    std::vector<std::jthread> threads;
    for (std::uint32_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint32_t i = 0; i < 10; ++i) {
          const BlobId id = blob_id(thread, i);
          (void)tier->write(id, blob_bytes(id, 40000))->wait();  // many are refused, and counted before
          if ((round + i) % 3 == 0) (void)tier->remove(id);
        }
      });
    }
    threads.clear();
    ASSERT_TRUE(tier->check_integrity()) << tier->check_integrity().error().message << ", round " << round;
  }
  EXPECT_GT(tier->stats().refused_full, 0u);
}

// As a mount that comes late: what is written until then must not count as all that lies there.
TEST_F(DirectoryTest, AFolderInAnothersPlaceIsCountedAgain) {
  const auto put = [](Tier& tier, const BlobId& id) { return tier.write(id, blob_bytes(id, 300000))->wait(); };
  ASSERT_TRUE(open(1 << 20)->write(blob_id(1, 0), blob_bytes(blob_id(1, 0), 600000))->wait());
  const fs::path away = folder_.path().string() + ".away", fresh = folder_.path().string() + ".fresh";
  fs::rename(folder_.path(), away);
  const auto tier = open(1 << 20);
  ASSERT_TRUE(put(*tier, blob_id(2, 0)));
  fs::rename(folder_.path(), fresh);
  fs::rename(away, folder_.path());

  EXPECT_TRUE(put(*tier, blob_id(3, 0)));
  EXPECT_EQ(code_of(put(*tier, blob_id(4, 0))), ErrorCode::kFull);
  EXPECT_EQ(tier->used_bytes(), tier->stored_bytes(600000) + tier->stored_bytes(300000));
  fs::remove_all(fresh);
}

// What cannot be counted is not empty.
TEST_F(DirectoryTest, AFolderThatCannotBeCountedIsNotOpened) {
  ASSERT_TRUE(open()->write(blob_id(1, 0), blob_bytes(blob_id(1, 0), 100))->wait());
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  rlimit few = files;
  few.rlim_cur = static_cast<rlim_t>(dup(0));
  close(static_cast<int>(few.rlim_cur));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto opened = make_directory_tier(folder_.path(), 1 << 20, clock_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(code_of(opened), ErrorCode::kIo);
}

TEST_F(DirectoryTest, ABlobIsTouchedByWhoeverWritesOrFindsIt) {
  const auto tier = open();
  const BlobId id = blob_id(1, 0);
  EXPECT_EQ(tier->untouched_s(id), 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 100))->wait());
  EXPECT_LT(tier->untouched_s(id), kAbandonedAfterSeconds);
  age_all(std::chrono::hours(30));
  EXPECT_GT(tier->untouched_s(id), kAbandonedAfterSeconds);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 100))->wait());
  EXPECT_LT(tier->untouched_s(id), kAbandonedAfterSeconds);
  const auto disk = make_disk_tier({.folder = folder_.path()}, clock_).value();
  EXPECT_EQ(disk->untouched_s(id), std::numeric_limits<double>::infinity()) << "its only writer";
}

}  // namespace
}  // namespace shale::testing
