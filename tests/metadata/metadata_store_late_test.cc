// A metadata store whose folder is not there yet, does not answer, or goes while it is open.
#include <gtest/gtest.h>

#include "metadata/metadata_store_fixture.h"
#include "metadata/sqlite.h"

namespace shale {
namespace {

class MetadataStoreLateTest : public MetadataStoreTest {
 protected:
  std::unique_ptr<MetadataStore> open_late() {
    const ModelRecord model{kModel, "tiny"};
    auto opened = MetadataStore::open_late(path(), model, [this] { return answers_; }, test_wall_s);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }
  static void measure(MetadataStore& metadata_store, const Hash128& key, double agreement) {
    EXPECT_TRUE(metadata_store.record_quality({.key = key, .method = kInt8, .quality = agreement, .questions = 4}));
    EXPECT_TRUE(metadata_store.record_question(key, {.text = "Which?"}));
    EXPECT_TRUE(metadata_store.record_prefix({.key = key, .tokens = 100, .accesses = 2}, kHalfLifeS));
    EXPECT_TRUE(metadata_store.record_prefill({.tokens = 10, .depth = 0, .seconds = 1}));
  }
  // As another process finds it.
  void expect_in_file(const Hash128& key, double agreement) const {
    const auto other = open();
    EXPECT_EQ(other->qualities(key)->size(), 1u);
    EXPECT_EQ(other->quality_for(key, kInt8, 1)->quality, agreement);
    EXPECT_EQ(other->questions(key)->size(), 1u);
    EXPECT_EQ(other->prefix(key)->accesses, 2u);
    EXPECT_EQ(other->models()->front().name, "tiny");
  }
  static void look(MetadataStore& metadata_store) {
    wall_s += MetadataStore::kLookEveryS;
    EXPECT_TRUE(metadata_store.refresh());
  }

  bool answers_ = true;
};

TEST_F(MetadataStoreLateTest, WhatWasMeasuredBeforeTheFolderAnswersIsKept) {
  {
    const auto before = open();
    measure(*before, kSecond, 0.5);
  }
  answers_ = false;
  const auto metadata_store = open_late();
  ASSERT_TRUE(metadata_store->warning());
  EXPECT_NE(metadata_store->warning()->message.find("in memory until"), std::string::npos);
  measure(*metadata_store, kFirst, 0.75);
  ASSERT_TRUE(metadata_store->record_inherited(kFirst, 0.9));
  look(*metadata_store);
  EXPECT_FALSE(metadata_store->quality_for(kSecond, kInt8, 1));
  answers_ = true;
  look(*metadata_store);
  expect_in_file(kFirst, 0.75);
  expect_in_file(kSecond, 0.5);
  EXPECT_EQ(open()->inherited(kFirst), 0.9);
  EXPECT_EQ(metadata_store->quality_for(kSecond, kInt8, 1)->quality, 0.5) << "what was there before is known here, too";
  EXPECT_EQ(metadata_store->prefills()->size(), 2u);
  EXPECT_FALSE(metadata_store->warning());
  measure(*metadata_store, kThird, 0.25);
  expect_in_file(kThird, 0.25);
}

TEST_F(MetadataStoreLateTest, AFolderThatWasRemovedIsWrittenAnewOnceItIsBack) {
  const auto metadata_store = open_late();
  EXPECT_FALSE(metadata_store->warning());
  measure(*metadata_store, kFirst, 0.75);
  std::filesystem::remove_all(folder_);
  look(*metadata_store);
  measure(*metadata_store, kSecond, 0.5);
  EXPECT_FALSE(std::filesystem::exists(path()));
  std::filesystem::create_directory(folder_);
  look(*metadata_store);
  expect_in_file(kFirst, 0.75);
  expect_in_file(kSecond, 0.5);
  measure(*metadata_store, kThird, 0.25);
  expect_in_file(kThird, 0.25);
}

TEST_F(MetadataStoreLateTest, LooksNoOftenerThanItNeeds) {
  answers_ = false;
  const auto metadata_store = open_late();
  answers_ = true;
  wall_s += MetadataStore::kLookEveryS / 2;
  EXPECT_TRUE(metadata_store->refresh());
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(MetadataStoreLateTest, AnotherVersionIsAnErrorOfWhoNamedIt) {
  {
    const auto made = open();
    auto file = SqlDatabase::open(path(), 100);
    ASSERT_TRUE(file->execute("PRAGMA user_version = 99"));
  }
  const auto refused = MetadataStore::open_late(path(), {kModel, "tiny"}, [] { return true; }, test_wall_s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace shale
