// Blobs as files, where their folder is not what it was.
#include "tiers/blob_files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>

#include "support/temporary_folder.h"
#include "tiers/blobs.h"

namespace shale::testing {
namespace {

class BlobFilesTest : public ::testing::Test {
 protected:
  static bool reads(const BlobFiles& files, const BlobId& id) {
    const auto buffers = BufferPool::make(0);
    return files.read(id, {}, false, *buffers).has_value();
  }

  TemporaryFolder folder_;
  const BlobId id_ = blob_id(1, 0);
};

// A link stands for the mount point.
TEST_F(BlobFilesTest, WhereTheFileSystemIsGoneNothingIsMissing) {
  const auto link = folder_.path() / "cache", below = folder_.path() / "below", again = folder_.path() / "again";
  const auto mounted = std::filesystem::path("/dev/shm") / folder_.path().filename();
  std::filesystem::create_directory(below);
  std::error_code error;
  std::filesystem::create_directory(mounted, error);
  if (error || device_of(mounted) == device_of(below)) GTEST_SKIP() << "/dev/shm is no other file system";
  const auto point_to = [&](const std::filesystem::path& place) {
    std::filesystem::remove(link);
    std::filesystem::create_directory_symlink(place, link);
  };
  point_to(mounted);
  const auto files = BlobFiles::open(link).value();
  EXPECT_TRUE(files->write(id_, *blob_bytes(id_, 4096), {}));
  std::filesystem::copy(mounted, again, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(mounted);
  const auto open_code = [&](const BlobId& id) { return code_of(files->open_blob(id, false)); };

  point_to(below);
  EXPECT_EQ(open_code(id_), ErrorCode::kIo);
  EXPECT_EQ(code_of(files->remove(id_)), ErrorCode::kIo);
  EXPECT_EQ(code_of(files->list()), ErrorCode::kIo);
  EXPECT_EQ(code_of(files->parts(id_.object)), ErrorCode::kIo);
  point_to(again);
  EXPECT_TRUE(reads(*files, id_)) << "mounted again, as another device";
  EXPECT_EQ(open_code(blob_id(2, 0)), ErrorCode::kNotFound);
  EXPECT_TRUE(files->parts(blob_id(2, 0).object));
}

TEST_F(BlobFilesTest, WhatLiesThereIsRemovedWithoutAFolderForTemporaryFiles) {
  const auto files = BlobFiles::open(folder_.path()).value();
  ASSERT_TRUE(files->write(id_, *blob_bytes(id_, 4096), {}));
  std::filesystem::remove_all(folder_.path() / "temporary");
  EXPECT_GT(files->remove(id_).value(), 0u);
  EXPECT_EQ(code_of(files->open_blob(id_, false)), ErrorCode::kNotFound);
}

TEST_F(BlobFilesTest, WhereOnlyOthersCanBeWrittenDirectlyItIsWrittenAllTheSame) {
  const auto ram = folder_.path() / "ram";
  std::filesystem::create_directory(ram);
  if (mount("ramfs", ram.c_str(), "ramfs", 0, "") != 0) GTEST_SKIP() << "mounting is not permitted";
  {
    const auto files = BlobFiles::open(ram).value();
    const auto left = [&] {
      const std::filesystem::recursive_directory_iterator all(ram / "temporary");
      return std::count_if(begin(all), end(all), [](const auto& entry) { return entry.is_regular_file(); });
    };
    EXPECT_FALSE(files->supports_direct());
    EXPECT_EQ(left(), 0);
    const auto written = files->write(id_, *blob_bytes(id_, 5000), {.direct = true});
    EXPECT_TRUE(written) << written.error().message;
    EXPECT_EQ(left(), 0);
    EXPECT_TRUE(reads(*files, id_));
  }
  umount(ram.c_str());
}

}  // namespace
}  // namespace shale::testing
