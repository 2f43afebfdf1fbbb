// An index's folder and the device below: what outlives a loss of power, and file systems that come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "store/index_folder_fixture.h"

namespace {
std::atomic<int> files_synchronised = 0;
std::atomic<int> times_synchronising_fails = 0;
}  // namespace

// In the place of the system's, which it calls.
extern "C" int fdatasync(int file) {
  if (times_synchronising_fails > 0) {
    --times_synchronising_fails;
    errno = EIO;
    return -1;
  }
  ++files_synchronised;
  return static_cast<int>(syscall(SYS_fdatasync, file));
}

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

TEST_F(IndexFolderTest, WhatIsFlushedIsOnTheDeviceWhereThatIsAskedFor) {
  for (const bool sync : {false, true}) {
    const auto folder = IndexFolder::open(folder_.path(), IndexFolder::kLogBytesMax, sync).value();
    folder->load([](const IndexRecord&) {});
    const auto synchronised = [before = files_synchronised.load()] { return files_synchronised > before; };
    folder->append(stored(1));
    ASSERT_TRUE(folder->flush());
    EXPECT_EQ(synchronised(), sync);
    const auto snapshot_too = [before = files_synchronised.load()] { return files_synchronised > before; };
    ASSERT_TRUE(folder->write_snapshot([](const IndexFolder::Visit&) {}));
    EXPECT_EQ(snapshot_too(), sync);
  }
}

TEST_F(IndexFolderTest, UsesAloneAreNotSynchronised) {
  const auto folder = IndexFolder::open(folder_.path(), IndexFolder::kLogBytesMax, true).value();
  const int before = files_synchronised;
  folder->append(about(IndexRecord::Type::kUsed, 1));
  ASSERT_TRUE(folder->flush());
  EXPECT_EQ(files_synchronised, before);
  folder->append(stored(1));
  ASSERT_TRUE(folder->flush());
  EXPECT_EQ(files_synchronised, before + 1);
  ASSERT_TRUE(folder->flush());
  EXPECT_EQ(files_synchronised, before + 1);
}

// The system says so once: another call on the same file succeeds, and writes nothing.
TEST_F(IndexFolderTest, ALogThatCouldNotBeSynchronisedIsFollowedByAnother) {
  for (const bool another_can_be : {true, false}) {
    const TemporaryFolder tier;
    const auto folder = IndexFolder::open(tier.path(), IndexFolder::kLogBytesMax, true).value();
    const auto other = IndexFolder::open(tier.path()).value();
    Known known;
    other->load(known.visit());
    folder->append(stored(1));
    folder->append(about(IndexRecord::Type::kRemoved, 2));
    times_synchronising_fails = another_can_be ? 1 : 2;
    EXPECT_EQ(folder->flush().has_value(), another_can_be);
    EXPECT_EQ(times_synchronising_fails, 0);
    EXPECT_TRUE(folder->flush());
    EXPECT_TRUE(folder->begun_anew()) << "so that all is told again";
    EXPECT_FALSE(folder->begun_anew());
    folder->append(stored(3));
    ASSERT_TRUE(folder->flush());
    other->follow(known.visit());
    EXPECT_TRUE(known.names().contains(3));
    ASSERT_EQ(other->unfinished().size(), 2u) << "in the old log and in the new one, which are both there";
    for (const auto& unfinished : other->unfinished()) EXPECT_EQ(unfinished.name.high, 2u);
    EXPECT_TRUE(other->unfinished_of_the_dead().empty()) << "its writer lives";
  }
}

// A link stands for the mount point.
TEST_F(IndexFolderTest, AFolderThatIsMountedAgainAsAnotherDeviceIsLoggedTo) {
  const auto mounted = fs::path("/dev/shm") / folder_.path().filename();
  const auto below = folder_.path() / "below", again = folder_.path() / "again", link = folder_.path() / "link";
  fs::create_directory(below);
  std::error_code error;
  fs::create_directory(mounted, error);
  if (error || device_of(mounted) == device_of(below)) GTEST_SKIP() << "/dev/shm is no other file system";
  const auto point_to = [&](const fs::path& folder) {
    fs::remove(link);
    fs::create_directory_symlink(folder, link);
  };
  point_to(mounted);
  const auto one = IndexFolder::open(link).value();
  EXPECT_TRUE(one->lead());
  one->append(stored(1));
  ASSERT_TRUE(one->flush());
  fs::copy(mounted, again, fs::copy_options::recursive);
  fs::remove_all(mounted);
  point_to(below);
  one->append(stored(2));
  EXPECT_FALSE(one->flush());
  EXPECT_FALSE(fs::exists(below / "store")) << "what lies below the mount point is another file system's";
  point_to(again);
  EXPECT_TRUE(one->flush());
  EXPECT_TRUE(one->begun_anew());
  EXPECT_TRUE(one->lead());
  const auto other = IndexFolder::open(link).value();
  Known known;
  other->load(known.visit());
  one->append(stored(3));
  ASSERT_TRUE(one->flush());
  other->follow(known.visit());
  EXPECT_THAT(known.names(), ::testing::ElementsAre(1, 3));
  EXPECT_FALSE(other->lead());
}

}  // namespace
}  // namespace shale::testing
