// Objects on a tier that several processes write to, and what a scan makes of what they leave.
#include "cache/stored.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support/cache_fixture.h"
#include "support/faulty_tier.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using testing::CacheTest;
using testing::Faults;
using testing::FaultyTier;
using testing::Tokens;

const Method kStrata{.scorer = "knorm", .quantizer = "none"};  // five strata: five chunks

class StoredTest : public CacheTest {
 protected:
  StoredTest() { open(); }

  std::unique_ptr<Tier> shared() const {
    return make_directory_tier(folder_.path() / "shared", kUnlimited, clock_).value();
  }
  std::unique_ptr<Tier> faulty(Faults faults) const {
    return std::make_unique<FaultyTier>(shared(), std::move(faults), clock_);
  }

  // The same entry as another computation might leave it: one value differs in its last bit.
  ObjectBytes object(bool other_rounding = false) {
    const Tokens tokens = tokens_of(1, 200);
    Sequence sequence(*pool_);
    compute(tokens, 200, sequence);
    if (other_rounding) pool_->host_view().writable_page(sequence.table(0, 0).pages[0].page).values[0].bits ^= 1;
    Cache::NewEntry entry;
    entry.tokens = tokens;
    return cache_->compress(entry, kStrata, sequence, executor_).value();
  }

  void age_all(std::chrono::hours by) const {
    for (const auto& file : fs::recursive_directory_iterator(folder_.path() / "shared")) {
      if (file.is_regular_file()) fs::last_write_time(file, file.last_write_time() - by);
    }
  }

  static void expect_sound(Tier& tier, std::size_t objects) {
    const auto found = scan_objects(tier).value();
    EXPECT_EQ(found.size(), objects);
    for (const StoredManifest& stored : found) EXPECT_TRUE(verify_object(tier, stored));
  }
};

TEST_F(StoredTest, WritersWhoseBytesDifferDoNotMixTheirChunks) {
  const auto tier = shared();
  ObjectWriter one(*tier, object()), other(*tier, object(true));
  EXPECT_TRUE(other.finish());
  EXPECT_TRUE(one.finish());
  expect_sound(*tier, 2);
}

TEST_F(StoredTest, WritersOfTheSameBytesShareThem) {
  const auto tier = shared(), same = shared();
  ObjectWriter one(*tier, object()), other(*same, object());
  EXPECT_TRUE(one.finish());
  EXPECT_TRUE(other.finish());
  expect_sound(*tier, 1);
}

TEST_F(StoredTest, AWriterThatFailsLeavesWhatAnotherCompleted) {
  const auto tier = shared();
  const auto failing = faulty({.fail_write = testing::only(5)});
  ObjectWriter fails(*failing, object());  // four chunks are its own
  ObjectWriter succeeds(*tier, object());
  EXPECT_TRUE(succeeds.finish());
  EXPECT_FALSE(fails.finish());
  expect_sound(*tier, 1);
}

TEST_F(StoredTest, AnObjectWhoseChunksAnotherTookBackIsNotPublished) {
  const auto tier = shared();
  bool relied = false;
  for (int attempt = 0; attempt < 100 && !relied; ++attempt) {
    const auto failing = faulty({.fail_write = testing::only(5)});
    ObjectWriter fails(*failing, object());
    // The other finds every chunk but the one whose write failed, unless it looks only once they were taken back.
    while (tier->list()->size() + 1 < fails.object().chunks.size()) std::this_thread::yield();
    ObjectWriter relies_on_them(*tier, object());
    EXPECT_FALSE(fails.finish());
    const Status status = relies_on_them.finish();
    relied = !status;
    if (relied) {
      EXPECT_EQ(status.error().code, ErrorCode::kBusy);
      EXPECT_TRUE(tier->list()->empty());
    } else {
      expect_sound(*tier, 1);
      ASSERT_TRUE(remove_object(*tier, object().manifest->name()));
    }
  }
  EXPECT_TRUE(relied);
}

TEST_F(StoredTest, OnASharedTierUnfinishedObjectsAreAbandonedByTheirAge) {
  const auto tier = shared();
  const Hash128 name = object().manifest->name();
  for (const std::uint32_t missing : {BlobId::kManifest, std::uint32_t{0}}) {
    ASSERT_TRUE(remove_object(*tier, name));
    ASSERT_TRUE(ObjectWriter(*tier, object()).finish());
    ASSERT_TRUE(tier->remove({name, missing}));
    const auto young = scan_objects(*tier)->at(0);
    EXPECT_EQ(young.error->code, ErrorCode::kNotFound) << "somebody may be writing it";
    EXPECT_FALSE(young.abandoned);
    age_all(std::chrono::hours(30));
    EXPECT_TRUE(scan_objects(*tier)->at(0).abandoned);
    ASSERT_TRUE(ObjectWriter(*tier, object()).finish());  // completes it, and touches what it found
    expect_sound(*tier, 1);
    age_all(std::chrono::hours(30));
    EXPECT_FALSE(scan_objects(*tier)->at(0).abandoned) << "what is sound";
  }
}

TEST_F(StoredTest, WhereNobodyElseWritesUnfinishedObjectsAreAbandoned) {
  const auto tier = make_memory_tier(kUnlimited, clock_);
  ASSERT_TRUE(ObjectWriter(*tier, object()).finish());
  ASSERT_TRUE(tier->remove({object().manifest->name(), 0}));
  const auto found = scan_objects(*tier)->at(0);
  EXPECT_EQ(found.error->code, ErrorCode::kCorrupt);
  EXPECT_TRUE(found.abandoned);
}

TEST_F(StoredTest, OpeningACacheRemovesWhatIsAbandonedOnASharedTier) {
  const auto left = shared();
  ASSERT_TRUE(left->write({{5, 5}, 0}, std::make_shared<AlignedBuffer>(100))->wait());
  age_all(std::chrono::hours(30));
  ASSERT_TRUE(left->write({{6, 6}, 0}, std::make_shared<AlignedBuffer>(100))->wait());
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(shared());
  cache_ = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_).value();
  EXPECT_EQ(left->list().value(), (std::vector<BlobId>{{{6, 6}, 0}})) << "which may be another's write under way";
  EXPECT_EQ(cache_->stats().corrupt_objects, 0u);
}

TEST_F(StoredTest, ADamagedObjectThatCannotBeRemovedIsSkippedAndSaid) {
  const auto disk = [&] { return make_disk_tier({.folder = folder_.path() / "other"}, clock_).value(); };
  ASSERT_TRUE(disk()->write({{5, 5}, BlobId::kManifest}, std::make_shared<AlignedBuffer>(100))->wait());
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<FaultyTier>(disk(), Faults{.fail_remove = testing::after(0)}, clock_));
  auto opened = Cache::open({}, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->stats().corrupt_objects, 1u);
  EXPECT_EQ((*opened)->stats().stuck_objects, 1u);
  ASSERT_TRUE((*opened)->warning());
  EXPECT_NE((*opened)->warning()->message.find("injected"), std::string::npos);
  EXPECT_EQ((*opened)->index().size(), 0u);
}

TEST_F(StoredTest, AScanReadsManifestsTogether) {
  VirtualClock clock;
  auto memory = make_memory_tier(kUnlimited, clock);
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(memory->write({{i, i}, BlobId::kManifest}, std::make_shared<AlignedBuffer>(10))->wait());
  }
  const auto far = make_throttled_tier(std::move(memory), {.name = "far", .latency_s = 0.1}, clock);
  const double start_s = clock.now_s();
  EXPECT_EQ(scan_objects(*far)->size(), 100u);
  EXPECT_LT(clock.now_s() - start_s, 0.5) << "two round trips, not a hundred";
}

TEST_F(StoredTest, RemovingAnObjectListsNoOthers) {
  const auto tier = faulty({.fail_list = testing::after(0)});
  ASSERT_TRUE(ObjectWriter(*tier, object()).finish());
  EXPECT_TRUE(remove_object(*tier, object().manifest->name()));
  EXPECT_TRUE(shared()->list()->empty());
}

}  // namespace
}  // namespace shale
