// What is written or removed while a tier counts what it stores is counted all the same.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tier/pending.h"
#include "tiers/blobs.h"

namespace shale::testing {
namespace {

// Does in tests what other threads do: something while it counts, and counting while it removes.
class CountingTier final : public Tier {
 public:
  explicit CountingTier(const Clock& clock) : Tier({"counting", kUnlimited, {}}, clock) {}

  void count(const std::function<void()>& meanwhile = [] {}) {
    EXPECT_TRUE(count_stored([&]() -> Result<std::uint64_t> {
      std::uint64_t found = 0;
      for (const auto& [id, bytes] : blobs_) found += bytes;
      meanwhile();
      return found;
    }));
  }
  bool persistent() const override { return false; }
  std::function<void()> after_removing = [] {};

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId&, const BlobRange&, double) override { return nullptr; }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    blobs_[id] = stored_bytes(bytes->size());
    finished_write(start_s, 0, bytes->size(), true, {});
    return finished_tier_write(true);
  }
  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    const std::uint64_t bytes = blobs_.extract(id).mapped();
    after_removing();
    return bytes;
  }
  Result<std::vector<BlobId>> list_impl() const override { return {}; }
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128&) const override { return {}; }
  std::uint64_t blob_bytes_impl(const BlobId& id) const override { return blobs_.at(id); }

  std::map<BlobId, std::uint64_t> blobs_;
};

class CountingTest : public ::testing::Test {
 protected:
  void write(std::uint32_t part) {
    ASSERT_TRUE(tier_.write(blob_id(1, part), blob_bytes(blob_id(1, part), 100))->wait());
  }

  RealClock clock_;
  CountingTier tier_{clock_};
};

TEST_F(CountingTest, WhatIsWrittenMeanwhileCounts) {
  write(0);
  tier_.count([this] { write(1); });
  EXPECT_EQ(tier_.used_bytes(), 2 * tier_.stored_bytes(100));
}

TEST_F(CountingTest, WhatIsFoundRemovedIsNotTakenAwayTwice) {
  write(0);
  write(1);
  tier_.after_removing = [this] { tier_.count(); };
  ASSERT_TRUE(tier_.remove(blob_id(1, 0)));
  EXPECT_EQ(tier_.used_bytes(), tier_.stored_bytes(100));
}

}  // namespace
}  // namespace shale::testing
