// Tiers whose folder cannot be opened at once, or whose calls do not come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "support/faulty_tier.h"
#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/file_tier.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr double kAtOnce = 0.001;  // seconds between attempts

class LateTest : public ::testing::Test {
 protected:
  // Opened when there is no file in its place.
  fs::path place() const { return folder_.path() / "cache"; }
  std::unique_ptr<FileTier> late_tier() {
    auto open = [place = place()]() -> Result<OpenFolder> {
      OpenFolder folder;
      SHALE_ASSIGN(folder.files, BlobFiles::open(place));
      folder.stored_bytes = folder.files->total_bytes().value_or(0);
      return folder;
    };
    auto opening = std::make_unique<FolderOpening>(place(), open, kAtOnce);
    opening->wait(10);
    FileTierOptions options{.name = "disk", .capacity_bytes = 1 << 20, .first_guess = {}};
    return std::make_unique<FileTier>(options, std::move(opening), BufferPool::make(0), clock_);
  }

  TemporaryFolder folder_;
  RealClock clock_;
  const BlobId id_ = blob_id(1, 0);
};

TEST_F(LateTest, AFolderThatCannotBeOpenedIsOpenedWhenItCanBe) {
  {
    const auto tier = make_disk_tier({.folder = place()}, clock_).value();
    ASSERT_TRUE(tier->write(id_, blob_bytes(id_, 4096))->wait());
  }
  fs::rename(place(), folder_.path() / "away");
  std::ofstream(place()) << "in its place";
  const auto tier = late_tier();
  ASSERT_FALSE(tier->reachable());
  EXPECT_THAT(tier->trouble().value().message, HasSubstr(place().string()));
  EXPECT_EQ(tier->capacity_bytes(), 0u);
  EXPECT_EQ(tier->used_bytes(), 0u);
  EXPECT_EQ(code_of(tier->read(id_)->take()), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->write(id_, blob_bytes(id_, 4096))->wait()), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->list()), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->parts(id_.object)), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->remove(id_)), ErrorCode::kBusy);
  EXPECT_FALSE(tier->contains(id_));

  fs::remove(place());
  fs::rename(folder_.path() / "away", place());
  while (!tier->reachable()) std::this_thread::yield();
  EXPECT_FALSE(tier->trouble());
  EXPECT_EQ(tier->capacity_bytes(), 1u << 20);
  EXPECT_TRUE(tier->read(id_)->take());
  EXPECT_TRUE(tier->write(blob_id(2, 0), blob_bytes(blob_id(2, 0), 4096))->wait());
  const Status sound = tier->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

TEST_F(LateTest, AFolderThatDoesNotAnswerHoldsNobodyUp) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  const auto opened = std::make_shared<std::atomic<int>>(0);
  const auto open = [hangs, opened, place = place()]() -> Result<OpenFolder> {
    hangs->wait(true);
    ++*opened;
    return OpenFolder{};
  };
  {
    FolderOpening opening(place(), open);
    opening.wait(0.01);
    EXPECT_FALSE(opening.take());
    EXPECT_THAT(opening.trouble().message, HasSubstr("does not answer"));
  }
  EXPECT_EQ(*opened, 0) << "given up meanwhile";
  *hangs = false;
  hangs->notify_all();
  while (*opened == 0) std::this_thread::yield();
}

TEST_F(LateTest, WhatIsWrongWithTheFolderItselfIsAnError) {
  fs::create_directory(place());
  fs::permissions(place(), fs::perms::all);
  for (const char* scheme : {"file", "dir"}) {
    const TierSpec spec{.scheme = scheme, .name = "disk", .capacity_bytes = 1 << 20, .place = place(), .late = true};
    EXPECT_EQ(code_of(make_tier(spec, clock_)), ErrorCode::kInvalidArgument) << scheme;
  }
}

TEST_F(LateTest, ACallThatDoesNotComeBackIsToldOf) {
  VirtualClock clock;
  std::atomic<bool> open = false;
  FaultyTier tier(make_memory_tier(1 << 20, clock), {.open = &open}, clock);
  ASSERT_TRUE(tier.write(id_, blob_bytes(id_, 4096))->wait());
  EXPECT_FALSE(tier.trouble());
  std::jthread caller([&] { EXPECT_TRUE(tier.remove(id_)); });
  const auto silent = [&] {
    clock.advance(1);
    return tier.trouble().has_value();
  };
  while (!silent()) std::this_thread::yield();
  EXPECT_THAT(tier.trouble()->message, HasSubstr("has not answered for"));
  EXPECT_GE(clock.now_s(), 10);
  open = true;
  open.notify_all();
  caller.join();
  EXPECT_FALSE(tier.trouble());
}

TEST_F(LateTest, AFailedReadIsTroubleUntilOneIsAnswered) {
  VirtualClock clock;
  FaultyTier tier(make_memory_tier(1 << 20, clock), {.fail_read = only(1)}, clock);
  EXPECT_EQ(code_of(tier.read(id_)->take()), ErrorCode::kIo);
  EXPECT_THAT(tier.trouble().value().message, HasSubstr("injected"));
  EXPECT_EQ(code_of(tier.read(id_)->take()), ErrorCode::kNotFound);
  EXPECT_FALSE(tier.trouble());
}

// As long as it is within what so many bytes take, it is at work.
TEST_F(LateTest, AQueueIsNoSilence) {
  VirtualClock clock;
  const auto tier = make_throttled_tier(make_memory_tier(kUnlimited, clock), {"slow", 0.01, 1e5, 1e5}, clock);
  const auto write = tier->write(id_, blob_bytes(id_, 4 << 20));
  clock.advance(30);
  EXPECT_FALSE(write->ready());
  EXPECT_FALSE(tier->trouble());
}

}  // namespace
}  // namespace shale::testing
