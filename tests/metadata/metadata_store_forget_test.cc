// What a metadata store loses by itself, so that it stays as large as what is used.
#include <gtest/gtest.h>

#include "metadata/metadata_store_fixture.h"

namespace shale {
namespace {

constexpr std::uint64_t kMany = MetadataStore::kPrefixesMax + 100;

// The lower, the newer.
Hash128 used(std::uint64_t index) { return {7, index}; }

class MetadataStoreForgetTest : public MetadataStoreTest {
 protected:
  void SetUp() override {
    MetadataStoreTest::SetUp();
    metadata_store_ = open();
  }

  Status measure(const Hash128& key) {
    SHALE_TRY(metadata_store_->record_kind(key, ContextKind::kCode));
    SHALE_TRY(metadata_store_->record_inherited(key, 0.9));
    return metadata_store_->record_quality({.key = key, .method = kKeydiff, .keep = 0.5, .quality = 0.8});
  }
  bool knows(const Hash128& key) const { return open()->kind(key) && !open()->qualities(key)->empty(); }
  std::size_t questions(const Hash128& key) const { return metadata_store_->questions(key)->size(); }

  std::unique_ptr<MetadataStore> metadata_store_;
};

TEST_F(MetadataStoreForgetTest, PrefixesUsedLongestAgoGoWithAllThatIsOnlyTheirs) {
  const auto other = open();
  metadata_store_->note_shipped(kFirst);
  ASSERT_TRUE(metadata_store_->together([&]() -> Status {
    for (std::uint64_t i = 0; i < kMany; ++i) {
      SHALE_TRY(metadata_store_->record_prefix({.key = used(i), .age_s = static_cast<double>(i)}, kHalfLifeS));
      SHALE_TRY(metadata_store_->record_kind(used(i), ContextKind::kCode));
    }
    for (const Hash128& key : {kFirst, kSecond, used(0), used(kMany - 1)}) {
      SHALE_TRY(measure(key));
      SHALE_TRY(metadata_store_->record_question(key, {"why?", false}));
    }
    return {};
  }));
  ASSERT_TRUE(other->refresh().value_or(false));
  EXPECT_TRUE(other->kind(used(0)) && other->kind(kFirst) && other->kind(kSecond));
  EXPECT_FALSE(other->kind(used(kMany - 1))) << "as many are read as are kept in memory, the newest";

  wall_s += MetadataStore::kUnusedQualityS + 1;
  ASSERT_TRUE(measure(kThird));
  ASSERT_TRUE(metadata_store_->forget_old());
  EXPECT_EQ(metadata_store_->prefixes()->size(), MetadataStore::kPrefixesMax);
  EXPECT_TRUE(metadata_store_->prefix(used(MetadataStore::kPrefixesMax - 1)));
  EXPECT_FALSE(metadata_store_->prefix(used(MetadataStore::kPrefixesMax)));
  EXPECT_TRUE(knows(used(0)));
  EXPECT_TRUE(knows(kFirst)) << "shipped";
  EXPECT_TRUE(knows(kThird)) << "new";
  EXPECT_EQ(questions(used(0)), 1u);
  EXPECT_EQ(questions(used(kMany - 1)), 0u);
  for (const Hash128& key : {kSecond, used(kMany - 1)}) {
    EXPECT_TRUE(metadata_store_->qualities(key)->empty());
    EXPECT_FALSE(open()->kind(key));
    EXPECT_FALSE(open()->inherited(key));
  }
  EXPECT_TRUE(open()->inherited(used(0)));
}

TEST_F(MetadataStoreForgetTest, WhoDoesNotKnowTheShippedTextsLosesNothingOfThem) {
  ASSERT_TRUE(measure(kFirst));
  wall_s += MetadataStore::kUnusedQualityS + 1;
  ASSERT_TRUE(metadata_store_->forget_old());
  EXPECT_TRUE(knows(kFirst));
}

// A server that still runs says at its end which prefixes it used.
TEST_F(MetadataStoreForgetTest, QuestionsAboutPrefixesThatNobodyUsedStayWhileTheyAreNew) {
  ASSERT_TRUE(metadata_store_->record_prefix({.key = used(1)}, kHalfLifeS));
  ASSERT_TRUE(metadata_store_->together([&]() -> Status {
    for (std::uint64_t i = 0; i < MetadataStore::kUnusedQuestionsMax + 3; ++i) {
      SHALE_TRY(metadata_store_->record_question(used(i), {"why?", false}));
    }
    return {};
  }));
  ASSERT_TRUE(metadata_store_->forget_old());
  EXPECT_EQ(questions(used(0)), 0u);
  EXPECT_EQ(questions(used(1)), 1u) << "used";
  EXPECT_EQ(questions(used(2)), 0u);
  EXPECT_EQ(questions(used(3)), 1u);
}

}  // namespace
}  // namespace shale
