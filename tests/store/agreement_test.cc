// What the users of a shared tier agree on: the first one's word, kept apart from extents.
#include "extents/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/clock.h"
#include "extents/extent_scan.h"
#include "support/temporary_folder.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

Hash128 matter(std::string_view name) { return Hasher().add(name).finish(); }

class AgreementTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tier> user() const { return make_tier("dir://" + (folder_.path() / "kv").string(), clock_).value(); }

  TemporaryFolder folder_;
  RealClock clock_;
};

TEST_F(AgreementTest, TheFirstOnesWordHoldsForEverybody) {
  const auto one = user(), other = user();
  EXPECT_EQ(agree(*one, matter("weights"), "bf16").value(), "bf16");
  EXPECT_EQ(agree(*other, matter("weights"), "q8_0").value(), "bf16");
  EXPECT_EQ(agree(*other, matter("something else"), "q8_0").value(), "q8_0");
  EXPECT_EQ(agree(*one, matter("weights"), "file").value(), "bf16");
}

TEST_F(AgreementTest, IsNoExtent) {
  const auto tier = user();
  ASSERT_TRUE(agree(*tier, matter("weights"), "bf16"));
  const std::vector<BlobId> blobs = tier->list().value();
  ASSERT_EQ(blobs.size(), 1u);
  EXPECT_TRUE(is_agreement(blobs[0]));
  EXPECT_TRUE(scan_extents(*tier).value().empty()) << "nothing to verify, and nothing abandoned";
}

TEST_F(AgreementTest, WhatIsTooLongForAWordIsNone) {
  const auto tier = user();
  ASSERT_TRUE(agree(*tier, matter("weights"), std::string(kAgreementBytesMax, 'x')));
  const BlobId id = tier->list().value().at(0);
  ASSERT_TRUE(tier->remove(id));
  auto bytes = std::make_shared<AlignedBuffer>(kAgreementBytesMax + 1);
  std::memset(bytes->data(), 'x', bytes->size());
  ASSERT_TRUE(tier->write(id, std::move(bytes))->wait());
  const auto answer = agree(*tier, matter("weights"), "bf16");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace shale::testing
