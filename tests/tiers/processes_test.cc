// Several processes on one folder, and processes that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "support/child_process.h"
#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

std::size_t size_of(const BlobId& id) { return 1000 + id.part * 77777 % 900000; }

std::unique_ptr<Tier> open_disk(const std::filesystem::path& folder, const Clock& clock) {
  DiskTierOptions options;
  options.folder = folder;
  return make_disk_tier(options, clock).value();
}

std::unique_ptr<Tier> open_directory(const std::filesystem::path& folder, const Clock& clock) {
  return make_directory_tier(folder, kUnlimited, clock).value();
}

using Open = std::unique_ptr<Tier> (*)(const std::filesystem::path&, const Clock&);

// Writes and removes at random until killed.
[[noreturn]] void churn(Open open, const std::filesystem::path& folder, unsigned seed) {
  end_with_parent();
  RealClock clock;
  const auto tier = open(folder, clock);
  std::mt19937 random(seed);
  for (;;) {
    std::vector<std::shared_ptr<TierWrite>> writes;
    for (int i = 0; i < 4; ++i) {
      const BlobId id = blob_id(random() % 4, random() % 8);
      writes.push_back(tier->write(id, blob_bytes(id, size_of(id))));
    }
    for (const auto& write : writes) (void)write->wait();
    (void)tier->remove(blob_id(random() % 4, random() % 8));
  }
}

void expect_all_whole(const Tier& listed, Tier& tier) {
  const auto ids = listed.list().value();
  for (const BlobId& id : ids) {
    const auto read = tier.read(id)->take();
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(same_bytes(**read, *blob_bytes(id, size_of(id)))) << to_string(id);
  }
}

class KillTest : public ::testing::TestWithParam<std::pair<std::string, Open>> {};

TEST_P(KillTest, WhatIsListedAfterAKillIsWhole) {
  const Open open = GetParam().second;
  const TemporaryFolder folder;
  const RealClock clock;
  std::mt19937 random(7);
  std::size_t seen = 0;
  const double patience_s = clock.now_s() + 10;  // until a busy machine has let one write before it is killed
  for (unsigned round = 0; round < 12 || (seen == 0 && clock.now_s() < patience_s); ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) churn(open, folder.path(), round);
    std::this_thread::sleep_for(std::chrono::milliseconds(round < 12 ? 5 + random() % 60 : 2000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto tier = open(folder.path(), clock);
    EXPECT_FALSE(tier->read_only());
    EXPECT_TRUE(tier->check_integrity());
    expect_all_whole(*tier, *tier);
    seen += tier->list()->size();
  }
  EXPECT_GT(seen, 0u);
}

TEST_P(KillTest, AnotherProcessReadsWhileOneChurns) {
  const Open open = GetParam().second;
  const TemporaryFolder folder;
  const RealClock clock;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) churn(open, folder.path(), 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto tier = open(folder.path(), clock);
  std::mt19937 random(4);
  int whole = 0;
  const double patience_s = clock.now_s() + 10;  // until a busy machine has let the other one begin
  for (int i = 0; i < 400 || (whole == 0 && clock.now_s() < patience_s); ++i) {
    const BlobId id = blob_id(random() % 4, random() % 8);
    const auto read = tier->read(id)->take();
    if (read) {
      EXPECT_TRUE(same_bytes(**read, *blob_bytes(id, size_of(id))));
      ++whole;
    } else {
      EXPECT_EQ(code_of(read), ErrorCode::kNotFound) << read.error().message;
    }
  }
  EXPECT_GT(whole, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Folders, KillTest,
                         ::testing::Values(std::pair{std::string("disk"), &open_disk},
                                           std::pair{std::string("directory"), &open_directory}),
                         [](const auto& tested) { return tested.param.first; });

}  // namespace
}  // namespace shale::testing
