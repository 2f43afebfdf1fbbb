// What opening an S3 tier waits for, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/eventually.h"
#include "tiers/blobs.h"
#include "tiers/s3_fixture.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(S3Test, ALateTierIsReadWhileWhatItHoldsIsCounted) {
  S3Server server;
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(open(server)->write(id, blob_bytes(id, 5000))->wait());
  std::atomic<bool> may_list = false;
  server.set_fault([&](const S3Asked& asked, S3Answer right) {
    if (is_list(asked)) may_list.wait(false);
    return right;
  });
  const auto tier = open_late(server, "&size=1GiB&timeout=60s");
  EXPECT_TRUE(tier->reachable());
  EXPECT_FALSE(tier->trouble());
  EXPECT_EQ(tier->capacity_bytes(), 0u) << "nobody knows how much is left";
  EXPECT_TRUE(tier->counting());
  EXPECT_TRUE(tier->read(id)->take());
  may_list = true;
  may_list.notify_all();
  EXPECT_TRUE(eventually([&] { return tier->capacity_bytes() == 1u << 30; }));
  EXPECT_FALSE(tier->counting());
  EXPECT_EQ(tier->used_bytes(), 8192u);
}

TEST_F(S3Test, CountingEndsWithTheTier) {
  std::atomic<int> pages = 0;
  S3Server server({.fault = [&](const S3Asked& asked, S3Answer right) {
    if (is_list(asked)) {
      right.body = fmt::format(
          "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}"
          "</NextContinuationToken></ListBucketResult>",
          ++pages);
    }
    return right;
  }});
  auto tier = open_late(server, {});
  EXPECT_TRUE(tier->reachable());
  EXPECT_GT(pages, 1);
  tier.reset();
}

TEST_F(S3Test, AListThatNeverEndsIsAnError) {
  S3Server server({.page = 1});
  const auto tier = open(server);
  for (std::uint32_t part = 0; part < 3; ++part) {
    ASSERT_TRUE(tier->write(blob_id(1, part), blob_bytes(blob_id(1, part), 10))->wait());
  }
  const std::string same =
      "<ListBucketResult><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>same</NextContinuationToken></ListBucketResult>";
  server.set_fault(errs(10, is_list, [&](const S3Answer&) { return S3Answer{.body = same}; }));
  EXPECT_EQ(code_of(tier->list()), ErrorCode::kIo);
}

TEST_F(S3Test, WhatTheServerSaysIsToldInOneShortLine) {
  S3Server server;
  const auto tier = open(server, "&timeout=200ms");
  server.set_fault([](const S3Asked&, const S3Answer&) {
    return S3Answer{503,
                    "<Error>\n<Code>Slow\nDown</Code><Message>\n  " + std::string(100'000, 'x') + "</Message></Error>"};
  });
  const auto list = tier->list();
  ASSERT_FALSE(list);
  EXPECT_THAT(list.error().message, HasSubstr("status 503 Slow?Down"));
  EXPECT_LT(list.error().message.size(), 1000u);
}

TEST_F(S3Test, ATierWhoseServerIsAwayIsOpenedWhenItComes) {
  auto server = std::make_unique<S3Server>();
  server->set_fault(errs(1000, [](const auto&) { return true; }, [](const S3Answer&) { return S3Answer{500}; }));
  EXPECT_EQ(code_of(try_open(*server, "&timeout=200ms")), ErrorCode::kIo);
  const auto tier = open_late(*server, "&timeout=200ms");
  EXPECT_FALSE(tier->reachable());
  EXPECT_EQ(tier->capacity_bytes(), 0u);
  EXPECT_FALSE(tier->counting()) << "it is not there yet";
  EXPECT_EQ(code_of(tier->read(blob_id(1, 0))->take()), ErrorCode::kBusy);
  server->set_fault({});
  ASSERT_TRUE(eventually([&] { return tier->reachable().has_value(); }));
  EXPECT_TRUE(tier->write(blob_id(1, 0), blob_bytes(blob_id(1, 0), 10))->wait());
}

}  // namespace
}  // namespace shale::testing
