// What a folder's log says of blobs is there before these come, and before they go: who is killed in between leaves
// nothing that nobody knows of, and no promise that cannot be kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "extents/extent_io.h"
#include "extents/index_folder.h"
#include "store/placed_store.h"

namespace shale::testing {
namespace {

// On a disk, whose threads write the log, or in memory beside a log, where whoever calls the store does.
class LogFirstTest : public StorePlacementTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    StoreTier tier = GetParam() ? disk_tier(folder_.path(), clock_, kRoom) : memory_tier(clock_, kRoom);
    tier.folder = folder_.path();
    Faults faults{.on_write = [this](const BlobId& id) { look(id, true); },
                  .on_remove = [this](const BlobId& id) { look(id, false); }};
    tier.tier = std::make_unique<FaultyTier>(std::move(tier.tier), std::move(faults), clock_);
    log_ = IndexFolder::open(folder_.path()).value();
    StoreOptions options = with_methods({"knorm"});
    options.threads = 0;
    store_ = open(tiers_of(std::move(tier)), options);
  }

  // Compares what is about to happen to a blob with the log, as whoever reads that then does.
  void look(const BlobId& id, bool written) {
    const std::lock_guard lock(mutex_);
    log_->follow([this](const IndexRecord& record) {
      if (record.type == IndexRecord::Type::kStored) keep_[record.facts.name] = record.facts.keep;
    });
    const auto unfinished = log_->unfinished();
    const bool told = std::ranges::any_of(unfinished, [&](const IndexFolder::Unfinished& at) {
      return at.writing == written && (at.name == id.object || manifest_blob(at.tag, at.name) == id);
    });
    const auto kept = keep_.find(id.object);
    const bool cut = !written && !told && kept != keep_.end() && kept->second < 1;
    ++(written ? written_ : cut ? cut_ : removed_);
    if (!told && !cut) untold_.push_back((written ? "written: " : "removed: ") + to_string(id));
  }

  static constexpr std::uint64_t kRoom = 320 << 10;  // for an extent, and a part of another
  std::mutex mutex_;                                 // guards what follows
  std::unique_ptr<IndexFolder> log_;
  std::unordered_map<Hash128, float> keep_;  // of extents, as last told
  std::size_t written_ = 0, cut_ = 0, removed_ = 0;
  std::vector<std::string> untold_;
  std::unique_ptr<Store> store_;
};

TEST_P(LogFirstTest, TheLogKnowsBeforeTheTierDoes) {
  const auto keys = chain_of(1, kBlocks);
  ASSERT_TRUE(save_all(*store_, keys, {.method = Method::parse("knorm").value(), .recompute_s = 100}));
  ASSERT_TRUE(store_->flush());
  EXPECT_GT(written_, 1u);
  save_chains(*store_, 2, {.recompute_s = 1e6, .pin = true}, 1);
  EXPECT_GT(cut_, 0u) << "its room was needed";
  EXPECT_EQ(removed_, 0u);
  EXPECT_EQ(store_->remove(keys), kBlocks);
  ASSERT_TRUE(store_->flush());
  EXPECT_GT(removed_, 1u);
  EXPECT_EQ(untold_, std::vector<std::string>());
}
INSTANTIATE_TEST_SUITE_P(Tiers, LogFirstTest, ::testing::Values(false, true),
                         [](const auto& tier) { return tier.param ? "disk" : "memory"; });

}  // namespace
}  // namespace shale::testing
