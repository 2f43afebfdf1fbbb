#include "extents/extent_scan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

constexpr std::uint32_t kBlocks = 10;  // three chunks, the last of two blocks

class ExtentScan : public StoreTest {
 protected:
  void SetUp() override {
    const auto store = open(tiers_of(disk_tier(disk(), clock_)));
    ASSERT_TRUE(save_all(*store, keys_, {.label = "a document"}));
    ASSERT_TRUE(store->flush());
  }

  std::filesystem::path disk() const { return folder_.path() / "disk"; }
  std::vector<ScannedExtent> scan() {
    tier_ = disk_tier(disk(), clock_).tier;
    return scan_extents(*tier_).value();
  }
  std::filesystem::path file_of(const BlobId& id) const {
    const std::string object = id.object.hex();
    return disk() / "objects" / object.substr(0, 2) / object / fmt::format("{:08x}", id.part);
  }
  void flip_a_byte(const BlobId& id) const {
    std::fstream file(file_of(id), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file);
    file.seekg(40);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(40);
    file.put(byte);
  }

  const std::vector<BlockKey> keys_ = chain_of(1, kBlocks);
  std::unique_ptr<Tier> tier_;
};

TEST_F(ExtentScan, FindsWhatAStoreWroteWithoutKnowingItsNamespace) {
  const auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  const ScannedExtent& extent = found.front();
  ASSERT_FALSE(extent.error) << extent.error->message;
  EXPECT_EQ(extent.manifest->keys, keys_);
  EXPECT_EQ(extent.manifest->label, "a document");
  EXPECT_EQ(extent.keep, 1);
  EXPECT_GT(extent.bytes, extent.manifest->bytes_for(1));
  EXPECT_EQ(extent.blobs.size(), 1 + extent.manifest->parts());
  EXPECT_FALSE(is_abandoned(*tier_, extent));
  EXPECT_TRUE(verify_extent(*tier_, extent));
}

TEST_F(ExtentScan, VerifyingReadsEveryByteOfEveryPart) {
  const auto found = scan();
  for (std::size_t i = 1; i < found.front().blobs.size(); ++i) {
    flip_a_byte(found.front().blobs[i]);
    EXPECT_EQ(code_of(verify_extent(*tier_, found.front())), ErrorCode::kCorrupt) << i;
    flip_a_byte(found.front().blobs[i]);
  }
  EXPECT_TRUE(verify_extent(*tier_, found.front()));
}

TEST_F(ExtentScan, ToldDamageFromWhatIsUnfinishedAndFromOtherVersions) {
  const ScannedExtent sound = scan().front();
  flip_a_byte(sound.blobs.front());
  std::ofstream(disk() / "objects" / "stray") << "not a blob";
  const auto object = disk() / "objects/ab" / ("ab" + std::string(30, '0'));
  std::filesystem::create_directories(object);
  for (const char* part : {"manifest", "00000000"}) std::ofstream(object / part) << "of another version";
  int corrupt = 0, unfinished = 0, other = 0;
  for (const ScannedExtent& extent : scan()) {
    ASSERT_TRUE(extent.error);
    corrupt += extent.error->code == ErrorCode::kCorrupt;
    unfinished += extent.error->code == ErrorCode::kNotFound;
    other += extent.error->code == ErrorCode::kMismatch;
    EXPECT_EQ(is_abandoned(*tier_, extent), extent.error->code == ErrorCode::kCorrupt) << extent.error->message;
  }
  EXPECT_EQ(corrupt, 1) << "the manifest";
  EXPECT_EQ(unfinished, 1) << "its parts: as if somebody were writing them";
  EXPECT_EQ(other, 1);
}

TEST_F(ExtentScan, AnExtentThatLostAPartIsDamaged) {
  const ScannedExtent sound = scan().front();
  std::filesystem::remove(file_of(sound.blobs.back()));
  const auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  ASSERT_TRUE(found.front().error);
  EXPECT_EQ(found.front().error->code, ErrorCode::kCorrupt);
}

TEST_F(ExtentScan, AStoreThatIsOpenHearsOfWhatIsRemoved) {
  const auto store = open(tiers_of(disk_tier(disk(), clock_)));
  EXPECT_EQ(store->lookup(keys_).blocks, kBlocks);
  {
    const auto found = scan();
    const auto folder = IndexFolder::open(disk()).value();
    ASSERT_TRUE(remove_scanned(*tier_, folder.get(), found.front()));
    EXPECT_TRUE(scan().empty());
  }
  for (int i = 0; i < 500 && store->lookup(keys_).blocks > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(store->lookup(keys_).blocks, 0u);
  EXPECT_EQ(store->stats().tiers.front().bytes, 0u);
  expect_sound(*store);
}

}  // namespace
}  // namespace shale::testing
