// A tier that fails as a file says, on a virtual clock.
#include "tier/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() {
    auto file = FaultFile::open(path_);
    EXPECT_TRUE(file);
    tier_ = make_faulty_tier(make_memory_tier(1 << 20, clock_, "disk"), *file, clock_);
    EXPECT_TRUE(tier_->write(kThere, blob_of(1000))->wait());
  }
  static BlobBytes blob_of(std::size_t bytes) {
    auto blob = std::make_shared<AlignedBuffer>(bytes);
    std::memset(blob->data(), 0, bytes);
    return blob;
  }
  void say(const std::string& text) { std::ofstream(path_) << text; }

  static constexpr BlobId kThere{{1, 1}, 0}, kOther{{1, 1}, 1};
  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "faults";
  VirtualClock clock_;
  std::unique_ptr<Tier> tier_;
};

TEST_F(FaultsTest, EveryWordIsOfItsOperation) {
  say("disk fail_reads\n");
  EXPECT_EQ(tier_->read(kThere)->take().error().code, ErrorCode::kIo);
  say("disk fail_writes\n");
  EXPECT_EQ(tier_->write(kOther, blob_of(10))->wait().error().code, ErrorCode::kIo);
  say("disk full,fail_lists\n");
  EXPECT_EQ(tier_->write(kOther, blob_of(10))->wait().error().code, ErrorCode::kFull);
  EXPECT_EQ(tier_->list().error().code, ErrorCode::kIo);
  EXPECT_EQ(tier_->parts(kThere.object).error().code, ErrorCode::kIo);
  say("disk fail_removals\n");
  EXPECT_EQ(tier_->remove(kThere).error().code, ErrorCode::kIo);
  say("remote fail_reads,fail_removals\n");
  EXPECT_TRUE(tier_->read(kThere)->take());
  EXPECT_TRUE(tier_->remove(kThere));
  EXPECT_EQ(tier_->stats().refused_full, 1u);
  EXPECT_EQ(tier_->used_bytes(), 0u);
}

TEST_F(FaultsTest, AFlippedBitIsOfTheReadAndNotOfTheStore) {
  say("disk flip_reads\n");
  const auto damaged = tier_->read(kThere)->take();
  ASSERT_TRUE(damaged);
  EXPECT_EQ((*damaged)->data()[500], std::byte{0x10});
  say("");
  EXPECT_EQ((*tier_->read(kThere)->take())->data()[500], std::byte{0});
}

TEST_F(FaultsTest, WhatHangsEndsWhenTheWordIsGone) {
  say("disk hang\n");
  const auto read = tier_->read(kThere);
  clock_.advance(1000);
  EXPECT_FALSE(read->ready());
  say("");
  EXPECT_TRUE(read->ready());
  EXPECT_TRUE(read->take());
}

TEST_F(FaultsTest, ADelayIsWaitedFor) {
  say("disk delay=0.5\n");
  const auto read = tier_->read(kThere);
  EXPECT_FALSE(read->ready());
  EXPECT_TRUE(read->take());
  EXPECT_DOUBLE_EQ(clock_.now_s(), 0.5);
}

TEST_F(FaultsTest, TellsWhatItDoesNotUnderstand) {
  EXPECT_DOUBLE_EQ(parse_faults("clock -3600\ndisk hang\n")->clock_s, -3600);
  EXPECT_THAT(parse_faults("disk hang\n\nremote explode\n").error().message, HasSubstr("line 3: 'explode'"));
  EXPECT_THAT(parse_faults("disk delay=soon").error().message, HasSubstr("'soon'"));
  say("disk explode");
  EXPECT_EQ(FaultFile::open(path_).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale::testing
