// The disk tier's own promises: private files, one writer, damage is a miss, a full disk costs one blob.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "support/temporary_folder.h"
#include "tiers/blob_files.h"
#include "tiers/blob_frame.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"
#include "tiers/uring_reader.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DiskTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Tier>> open(DiskTierOptions options = {}) {
    if (options.folder.empty()) options.folder = folder_.path() / "cache";
    return make_disk_tier(options, clock_);
  }
  static Status put(Tier& tier, const BlobId& id, std::size_t size) {
    return tier.write(id, blob_bytes(id, size))->wait();
  }
  // The only file of the only object.
  fs::path stored_file() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / "cache" / "objects")) {
      if (entry.is_regular_file()) return entry.path();
    }
    return {};
  }

  std::size_t temporary_files() const {
    const fs::recursive_directory_iterator all(folder_.path() / "cache" / "temporary");
    return static_cast<std::size_t>(
        std::count_if(begin(all), end(all), [](const auto& entry) { return entry.is_regular_file(); }));
  }

  TemporaryFolder folder_;
  RealClock clock_;
  const BlobId id_ = blob_id(1, 0);
};

TEST_F(DiskTest, SaysWhereAndHow) {
  const auto tier = open().value();
  EXPECT_THAT(tier->describe(), HasSubstr((folder_.path() / "cache").string()));
  EXPECT_THAT(tier->describe(), ::testing::ContainsRegex("direct|buffered"));
  DiskTierOptions plain;
  plain.folder = folder_.path() / "plain";
  plain.direct_io = plain.io_uring = false;
  EXPECT_THAT(open(plain).value()->describe(), HasSubstr("buffered I/O, reads by threads"));
}

TEST_F(DiskTest, KeepsEverythingFromOtherUsers) {
  const auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, 5000));
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.status().permissions() & fs::perms(077), fs::perms::none) << entry.path();
  }
}

TEST_F(DiskTest, MakesFoldersThatItOwnsPrivateAgain) {
  (void)open().value();
  fs::permissions(folder_.path() / "cache" / "objects", fs::perms(0755));
  (void)open().value();
  EXPECT_EQ(fs::status(folder_.path() / "cache" / "objects").permissions(), fs::perms(0700));
}

TEST_F(DiskTest, RefusesAFolderOfSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  (void)open().value();
  ASSERT_EQ(chown((folder_.path() / "cache" / "objects").c_str(), 65534, 65534), 0);
  EXPECT_EQ(code_of(open()), ErrorCode::kInvalidArgument);
}

TEST_F(DiskTest, RefusesAFileInPlaceOfItsFolder) {
  std::ofstream(folder_.path() / "cache") << "not a folder";
  EXPECT_EQ(code_of(open()), ErrorCode::kInvalidArgument);
}

TEST_F(DiskTest, ASecondOneReadsWhileTheFirstWrites) {
  auto writer = open().value();
  const auto reader = open().value();
  EXPECT_FALSE(writer->read_only());
  ASSERT_TRUE(reader->read_only());
  EXPECT_THAT(reader->describe(), HasSubstr("read-only"));

  ASSERT_TRUE(put(*writer, id_, 300000));
  EXPECT_TRUE(same_bytes(**reader->read(id_)->take(), *blob_bytes(id_, 300000)));
  EXPECT_EQ(reader->list().value(), std::vector{id_});
  EXPECT_EQ(code_of(put(*reader, blob_id(2, 0), 10)), ErrorCode::kBusy);
  EXPECT_EQ(code_of(reader->remove(id_)), ErrorCode::kBusy);
  ASSERT_TRUE(writer->remove(id_));
  EXPECT_EQ(code_of(reader->read(id_)->take()), ErrorCode::kNotFound);

  writer.reset();
  EXPECT_FALSE(open().value()->read_only()) << "the lock went with the writer";
}

TEST_F(DiskTest, SeveralWritersShareAFolderThatEachOfThemOpensSo) {
  DiskTierOptions several;
  several.several_writers = true;
  const auto one = open(several).value();
  auto other = open(several).value();
  ASSERT_FALSE(one->read_only());
  ASSERT_FALSE(other->read_only());
  EXPECT_TRUE(open().value()->read_only()) << "one that expects to be alone must not write";
  ASSERT_TRUE(put(*one, id_, 300000));
  ASSERT_TRUE(put(*other, blob_id(2, 0), 5000));
  EXPECT_TRUE(same_bytes(**other->read(id_)->take(), *blob_bytes(id_, 300000)));
  EXPECT_EQ(one->list()->size(), 2u);

  EXPECT_EQ(one->used_bytes(), one->stored_bytes(300000)) << "its own";
  one->count_others(static_cast<std::int64_t>(one->stored_bytes(5000)));
  EXPECT_TRUE(one->check_integrity());
  ASSERT_TRUE(one->remove(blob_id(2, 0)));
  EXPECT_TRUE(one->check_integrity());
  other = nullptr;
  EXPECT_FALSE(open(several).value()->read_only());
}

TEST_F(DiskTest, OneOfSeveralWritersOnlyReadsWhereSomebodyExpectsToBeAlone) {
  const auto alone = open().value();
  DiskTierOptions several;
  several.several_writers = true;
  EXPECT_TRUE(open(several).value()->read_only());
}

TEST_F(DiskTest, ForeignAndTemporaryFilesAreNotListedAndLeftoversGo) {
  auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, 100));
  const std::uint64_t used = tier->used_bytes();
  const fs::path object = stored_file().parent_path();
  tier.reset();
  std::ofstream(object / "notes.txt") << "mine";
  std::ofstream(object / "ffffffff") << "the manifest's number, but not its name";
  std::ofstream(object.parent_path() / "readme") << "mine";
  std::ofstream(folder_.path() / "cache" / "temporary" / "7" / "half-written") << "gone";
  tier = open().value();
  EXPECT_EQ(tier->list().value(), std::vector{id_});
  EXPECT_EQ(tier->used_bytes(), used);
  EXPECT_TRUE(fs::exists(object / "notes.txt"));
  EXPECT_EQ(temporary_files(), 0u);
}

TEST_F(DiskTest, EveryFlippedBitOfTheFrameAndEveryTruncationIsCorrupt) {
  constexpr std::size_t kSize = 5000;
  const auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, kSize));
  const fs::path file = stored_file();
  std::string bytes(fs::file_size(file), '\0');
  std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto store = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc).write(content.data(), std::ssize(content));
  };
  for (std::size_t i = kSize; i < bytes.size(); i += bytes.size() - i > 48 + 97 ? 97 : 1) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    store(damaged);
    EXPECT_EQ(code_of(tier->read(id_)->take()), ErrorCode::kCorrupt) << "byte " << i;
  }
  for (const std::size_t length : {0u, 1u, 4095u, 4096u, 8191u}) {
    store(bytes.substr(0, length));
    EXPECT_EQ(code_of(tier->read(id_)->take()), ErrorCode::kCorrupt) << length << " bytes left";
  }
  store(bytes + std::string(4096, '\0'));
  EXPECT_EQ(code_of(tier->read(id_)->take()), ErrorCode::kCorrupt);
  store(bytes);
  EXPECT_TRUE(tier->read(id_)->take());
  EXPECT_GT(tier->stats().read_errors, 50u);
}

TEST_F(DiskTest, ABlobUnderAnothersNameIsCorrupt) {
  const auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, 100));
  const fs::path file = stored_file();
  fs::copy_file(file, file.parent_path() / "00000001");
  EXPECT_EQ(code_of(tier->read(blob_id(1, 1))->take()), ErrorCode::kCorrupt);
}

TEST_F(DiskTest, FilesCutShortByACrashOfTheMachineGoWhenOpened) {
  auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, 100000));
  fs::resize_file(stored_file(), 0);
  tier = nullptr;
  tier = open().value();
  EXPECT_FALSE(tier->contains(id_));
  EXPECT_TRUE(put(*tier, id_, 100000));
  EXPECT_TRUE(tier->read(id_)->take());
}

TEST_F(DiskTest, WaitsForTheDeviceWhereAsked) {
  DiskTierOptions options;
  options.sync = true;
  const auto tier = open(options).value();
  ASSERT_TRUE(put(*tier, id_, 100000));
  EXPECT_TRUE(same_bytes(**tier->read(id_)->take(), *blob_bytes(id_, 100000)));
}

// Runs in a child, so that limits and filters end with it; 0 is success.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(DiskTest, AFolderThatSomebodyRemovedIsMadeAgain) {
  const auto tier = open().value();
  ASSERT_TRUE(put(*tier, id_, 4096));
  fs::remove_all(folder_.path() / "cache");
  EXPECT_EQ(code_of(tier->read(id_)->take()), ErrorCode::kNotFound);
  ASSERT_TRUE(put(*tier, blob_id(2, 0), 4096));
  EXPECT_TRUE(tier->read(blob_id(2, 0))->take());
  EXPECT_EQ(tier->list()->size(), 1u);
}

TEST_F(DiskTest, AFolderInWhichEverybodyMayReplaceFilesIsRefused) {
  fs::create_directory(folder_.path() / "cache");
  ASSERT_EQ(chmod((folder_.path() / "cache").c_str(), 0777), 0);
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("`chmod o-w " + (folder_.path() / "cache").string() + "`"));
  ASSERT_EQ(chmod((folder_.path() / "cache").c_str(), 01777), 0);
  EXPECT_TRUE(open()) << "as /tmp is: nobody may replace what is another's";
}

TEST_F(DiskTest, AFileSizeLimitCostsTheBlobOnly) {
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const auto tier = open().value();
              const rlimit limit = {1 << 20, 1 << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              if (code_of(put(*tier, id_, 3 << 20)) != ErrorCode::kFull) return 1;
              if (tier->used_bytes() != 0 || tier->contains(id_)) return 2;
              if (temporary_files() != 0) return 3;
              if (tier->trouble().value_or(Error{}).code != ErrorCode::kFull) return 6;
              if (!put(*tier, id_, 1 << 19) || !tier->read(id_)->take()) return 4;
              if (tier->trouble()) return 7;
              return tier->stats().refused_full == 1 ? 0 : 5;
            }),
            0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space of their own
// In a process that has room for half of what the file pretends to hold.
int read_with_little_memory(Tier& tier, const BlobId& id, ErrorCode expected) {
  const rlimit limit = {std::uint64_t{2} << 30, std::uint64_t{2} << 30};
  setrlimit(RLIMIT_AS, &limit);
  return code_of(tier.read(id)->take()) == expected && code_of(tier.read(id)->take()) == expected ? 0 : 1;
}

TEST_F(DiskTest, AForgedLengthTakesNoMemoryAndLackingMemoryIsAnError) {
  constexpr std::uint64_t kForged = std::uint64_t{3} << 30;
  for (const bool io_uring : {true, false}) {
    DiskTierOptions options;
    options.folder = folder_.path() / "cache";
    options.io_uring = io_uring;
    EXPECT_EQ(in_child([&] {
                const auto tier = open(options).value();
                if (!put(*tier, id_, 100)) return 2;
                fs::resize_file(stored_file(), kForged);
                return read_with_little_memory(*tier, id_, ErrorCode::kCorrupt);
              }),
              0);
    EXPECT_EQ(in_child([&] {
                const auto tier = open(options).value();
                const AlignedBuffer tail = frame_tail(id_, {static_cast<const std::byte*>(nullptr), 0});
                std::uint64_t claimed = kForged - kBlobFooterBytes;
                const auto footer = tail.bytes().last(kBlobFooterBytes);
                std::string forged(reinterpret_cast<const char*>(footer.data()), footer.size());
                std::memcpy(forged.data() + 24, &claimed, sizeof claimed);
                const Hash128 sum = hash128(std::as_bytes(std::span(forged)).first(40));
                std::memcpy(forged.data() + 40, &sum.low, sizeof sum.low);
                std::fstream file(stored_file(), std::ios::in | std::ios::out | std::ios::binary);
                file.seekp(static_cast<std::streamoff>(kForged - kBlobFooterBytes));
                file.write(forged.data(), std::ssize(forged)).flush();
                return read_with_little_memory(*tier, id_, ErrorCode::kIo);
              }),
              0);
    fs::remove_all(options.folder);
  }
}
#endif

TEST(UringReader, AnInterruptedReadGoesOnAndOnlyTheFilesEndIsDamage) {
  EXPECT_EQ(bytes_in_place(1000, false).value(), 1000u) << "the page cache may cut a read anywhere";
  EXPECT_EQ(bytes_in_place(8192, true).value(), 8192u);
  EXPECT_EQ(bytes_in_place(9000, true).value(), 8192u) << "direct I/O goes on at a block";
  EXPECT_EQ(bytes_in_place(-EINTR, false).value(), 0u);
  EXPECT_EQ(bytes_in_place(-EAGAIN, true).value(), 0u);
  EXPECT_EQ(code_of(bytes_in_place(-EIO, true)), ErrorCode::kIo);
  EXPECT_EQ(code_of(bytes_in_place(0, false)), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(bytes_in_place(100, true)), ErrorCode::kCorrupt) << "it ends inside a block";
}

TEST_F(DiskTest, AFullFileSystemCostsTheBlobOnly) {
  DiskTierOptions options;
  options.folder = folder_.path() / "small";
  fs::create_directory(options.folder);
  if (mount("tmpfs", options.folder.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "mounting is not permitted";
  {
    const auto tier = open(options).value();
    ASSERT_TRUE(put(*tier, id_, 2 << 20));
    EXPECT_EQ(code_of(put(*tier, blob_id(2, 0), 3 << 20)), ErrorCode::kFull);
    EXPECT_TRUE(tier->check_integrity());
    EXPECT_TRUE(same_bytes(**tier->read(id_)->take(), *blob_bytes(id_, 2 << 20)));
    ASSERT_TRUE(tier->remove(id_));
    EXPECT_TRUE(put(*tier, blob_id(2, 0), 3 << 20));
  }
  umount(options.folder.c_str());
}

TEST_F(DiskTest, FallsBackWhereTheFileSystemRefusesDirectIo) {
  DiskTierOptions options;
  options.folder = folder_.path() / "ram";
  fs::create_directory(options.folder);
  if (mount("ramfs", options.folder.c_str(), "ramfs", 0, "") != 0) GTEST_SKIP() << "mounting is not permitted";
  {
    const auto tier = open(options).value();
    EXPECT_THAT(tier->describe(), HasSubstr("buffered"));
    ASSERT_TRUE(put(*tier, id_, 2 << 20));
    EXPECT_TRUE(same_bytes(**tier->read(id_)->take(), *blob_bytes(id_, 2 << 20)));
  }
  umount(options.folder.c_str());
}

bool filter_calls(std::span<sock_filter> filter) {
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool refuse_io_uring() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  return filter_calls(filter);
}

bool refuse_to_open_folders() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
                          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECTORY, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  return filter_calls(filter);
}

// The blob's file is whole by then, and its name in place.
TEST_F(DiskTest, ABlobWhoseFolderCannotBeSynchronisedIsNotThere) {
  DiskTierOptions options;
  options.folder = folder_.path() / "cache";
  options.sync = true;
  (void)open(options).value();
  const int result = in_child([&] {
    if (!refuse_to_open_folders()) return 77;
    const auto files = BlobFiles::open(options.folder).value();
    const auto written = files->write(id_, *blob_bytes(id_, 100), {.direct = false, .sync = true});
    if (code_of(written) != ErrorCode::kIo) return 1;
    return files->file_bytes(id_) == 0 ? 0 : 2;
  });
  if (result == 77) GTEST_SKIP() << "system call filters are not permitted";
  EXPECT_EQ(result, 0);
}

TEST_F(DiskTest, FallsBackWhereTheKernelRefusesIoUring) {
  const int result = in_child([&] {
    if (!refuse_io_uring()) return 77;
    const auto tier = open().value();
    if (tier->describe().find("reads by threads") == std::string::npos) return 1;
    if (!put(*tier, id_, 2 << 20)) return 2;
    return same_bytes(**tier->read(id_)->take(), *blob_bytes(id_, 2 << 20)) ? 0 : 3;
  });
  if (result == 77) GTEST_SKIP() << "system call filters are not permitted";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace shale::testing
