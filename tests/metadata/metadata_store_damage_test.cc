// A metadata store's file that is damaged, foreign, or of another version.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <utility>
#include <vector>

#include "metadata/metadata_store_fixture.h"
#include "metadata/sqlite.h"

namespace shale {
namespace {

class MetadataStoreDamageTest : public MetadataStoreTest {
 protected:
  void write_file(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(MetadataStoreDamageTest, DamagedFileIsMovedAsideWithAWarning) {
  const std::string junk(8192, 'x');
  write_file(junk);
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->warning());
  EXPECT_EQ(metadata_store->warning()->code, ErrorCode::kCorrupt);
  EXPECT_NE(metadata_store->warning()->message.find(".corrupt"), std::string::npos);
  EXPECT_EQ(read_all(path().string() + ".corrupt"), junk);
  EXPECT_TRUE(metadata_store->record_prefix({.key = kFirst}, kHalfLifeS));
  EXPECT_FALSE(open()->warning());
}

// Who finds the damage second must not move aside what the first one made of it.
TEST_F(MetadataStoreDamageTest, OneOfSeveralProcessesRepairsAndNoneLosesARecord) {
  constexpr int kProcesses = 6;
  const std::string junk(20000, 'j');
  for (int round = 0; round < 15; ++round) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    write_file(junk);
    std::vector<pid_t> children;
    for (std::uint64_t i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      const auto opened = MetadataStore::open(path(), kModel, test_wall_s);
      const Status recorded =
          opened ? (*opened)->record_prefix({.key = {i, i}}, kHalfLifeS) : Status(std::unexpected(opened.error()));
      if (!recorded) std::fprintf(stderr, "%s\n", recorded.error().message.c_str());
      ::_exit(recorded ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(open()->prefixes()->size(), kProcesses);
    EXPECT_EQ(read_all(path().string() + ".corrupt"), junk);
  }
}

TEST_F(MetadataStoreDamageTest, DamageBehindASoundHeaderIsFoundToo) {
  {
    const auto metadata_store = open();
    for (std::uint64_t i = 0; i < 500; ++i)
      ASSERT_TRUE(metadata_store->record_prefix({.key = {i, i}, .label = "x"}, kHalfLifeS));
  }
  std::string bytes = read_all(path());
  ASSERT_GT(bytes.size(), 20000u);
  for (std::size_t i = 8192; i < bytes.size(); ++i) bytes[i] = 'x';
  write_file(bytes);
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->warning());
  EXPECT_TRUE(metadata_store->prefixes()->empty());
}

// Whatever numbers a foreign or damaged file holds, none that cannot have been measured reaches a plan.
TEST_F(MetadataStoreDamageTest, RowsThatCannotHaveBeenMeasuredAreNotSeen) {
  const auto put = [&](MetadataStore& metadata_store) {
    ASSERT_TRUE(metadata_store.record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.9}));
    ASSERT_TRUE(metadata_store.record_prefix({.key = kFirst, .tokens = 5, .frequency = 1}, kHalfLifeS));
    ASSERT_TRUE(metadata_store.record_delay("disk", "", {.latency_s = 1, .read_bytes_per_s = 1, .samples = 1}));
    ASSERT_TRUE(metadata_store.record_decode("int8", 1e9));
    ASSERT_TRUE(metadata_store.record_prefill({.tokens = 5, .depth = 0, .seconds = 1}));
  };
  const auto seen = [&](const MetadataStore& metadata_store) {
    return metadata_store.qualities(kFirst)->size() + (metadata_store.quality_for(kFirst, kKeydiff, 0.5) ? 1 : 0) +
           (metadata_store.prefix(kFirst) ? 1 : 0) + metadata_store.prefixes()->size() +
           (metadata_store.delay("disk", "") ? 1 : 0) + (metadata_store.decode_bytes_per_s("int8") ? 1 : 0) +
           metadata_store.prefills()->size();
  };
  put(*open());
  ASSERT_EQ(seen(*open()), 7u);
  // Qualities and cached prefixes are seen in two ways.
  const std::vector<std::pair<const char*, std::size_t>> damages = {
      {"quality SET agreement = 1.5", 5},  {"quality SET agreement = 9e999", 5},     {"quality SET keep = -0.5", 5},
      {"quality SET kl = 'much'", 5},      {"quality SET questions = -1", 5},        {"entry SET frequency = 1e300", 5},
      {"entry SET tokens = 1e10", 5},      {"entry SET accesses = 'many'", 5},       {"entry SET recompute_s = -1", 5},
      {"delay SET latency_s = -9e999", 6}, {"delay SET read_bytes_per_s = 1e30", 6}, {"decode SET bytes_per_s = -1", 6},
      {"prefill SET seconds = x'00'", 6}};
  for (const auto& [damage, left] : damages) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    put(*open());
    ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute(fmt::format("UPDATE {}", damage))) << damage;
    EXPECT_EQ(seen(*open()), left) << damage;
  }
}

TEST_F(MetadataStoreDamageTest, TruncationToNothingBeginsAnew) {
  open();
  write_file("");
  const auto metadata_store = open();
  EXPECT_FALSE(metadata_store->warning());
  EXPECT_TRUE(metadata_store->record_prefix({.key = kFirst}, kHalfLifeS));
}

TEST_F(MetadataStoreDamageTest, AnotherVersionIsRefusedAndLeftAlone) {
  ASSERT_TRUE(open()->record_prefix({.key = kFirst}, kHalfLifeS));
  {
    const auto database = SqlDatabase::open(path(), 100);
    ASSERT_TRUE(database->execute("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)"));
  }
  const auto refused = MetadataStore::open(path(), kModel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_NE(refused.error().message.find("version 99"), std::string::npos);
  EXPECT_NE(refused.error().message.find(path().string()), std::string::npos);
  ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute("PRAGMA user_version = 1"));
  EXPECT_TRUE(open()->prefix(kFirst));
}

TEST_F(MetadataStoreDamageTest, AnotherProgramsDatabaseIsRefused) {
  ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute("CREATE TABLE recipes (name TEXT)"));
  const auto refused = MetadataStore::open(path(), kModel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace shale
