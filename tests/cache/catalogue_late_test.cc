// A catalogue whose folder is not there yet, does not answer, or goes while it is open.
#include <gtest/gtest.h>

#include "cache/catalogue_fixture.h"
#include "cache/sqlite.h"

namespace shale {
namespace {

class CatalogueLateTest : public CatalogueTest {
 protected:
  std::unique_ptr<Catalogue> open_late() {
    const ModelRecord model{kModel, "tiny"};
    auto opened = Catalogue::open_late(path(), model, [this] { return answers_; }, test_wall_s);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }
  static void measure(Catalogue& catalogue, const Hash128& key, double agreement) {
    EXPECT_TRUE(catalogue.record_quality({.key = key, .method = kInt8, .quality = agreement, .questions = 4}));
    EXPECT_TRUE(catalogue.record_question(key, {.text = "Which?"}));
    EXPECT_TRUE(catalogue.record_entry({.key = key, .tokens = 100, .accesses = 2}, kHalfLifeS));
    EXPECT_TRUE(catalogue.record_prefill({.tokens = 10, .depth = 0, .seconds = 1}));
  }
  // As another process finds it.
  void expect_in_file(const Hash128& key, double agreement) const {
    const auto other = open();
    EXPECT_EQ(other->qualities(key)->size(), 1u);
    EXPECT_EQ(other->quality_for(key, kInt8, 1)->quality, agreement);
    EXPECT_EQ(other->questions(key)->size(), 1u);
    EXPECT_EQ(other->entry(key)->accesses, 2u);
    EXPECT_EQ(other->models()->front().name, "tiny");
  }
  static void look(Catalogue& catalogue) {
    wall_s += Catalogue::kLookEveryS;
    EXPECT_TRUE(catalogue.refresh());
  }

  bool answers_ = true;
};

TEST_F(CatalogueLateTest, WhatWasMeasuredBeforeTheFolderAnswersIsKept) {
  {
    const auto before = open();
    measure(*before, kSecond, 0.5);
  }
  answers_ = false;
  const auto catalogue = open_late();
  ASSERT_TRUE(catalogue->warning());
  EXPECT_NE(catalogue->warning()->message.find("in memory until"), std::string::npos);
  measure(*catalogue, kFirst, 0.75);
  look(*catalogue);
  EXPECT_FALSE(catalogue->quality_for(kSecond, kInt8, 1));
  answers_ = true;
  look(*catalogue);
  expect_in_file(kFirst, 0.75);
  expect_in_file(kSecond, 0.5);
  EXPECT_EQ(catalogue->quality_for(kSecond, kInt8, 1)->quality, 0.5) << "what was there before is known here, too";
  EXPECT_EQ(catalogue->prefills()->size(), 2u);
  EXPECT_FALSE(catalogue->warning());
  measure(*catalogue, kThird, 0.25);
  expect_in_file(kThird, 0.25);
}

TEST_F(CatalogueLateTest, AFolderThatWasRemovedIsWrittenAnewOnceItIsBack) {
  const auto catalogue = open_late();
  EXPECT_FALSE(catalogue->warning());
  measure(*catalogue, kFirst, 0.75);
  std::filesystem::remove_all(folder_);
  look(*catalogue);
  measure(*catalogue, kSecond, 0.5);
  EXPECT_FALSE(std::filesystem::exists(path()));
  std::filesystem::create_directory(folder_);
  look(*catalogue);
  expect_in_file(kFirst, 0.75);
  expect_in_file(kSecond, 0.5);
  measure(*catalogue, kThird, 0.25);
  expect_in_file(kThird, 0.25);
}

TEST_F(CatalogueLateTest, LooksNoOftenerThanItNeeds) {
  answers_ = false;
  const auto catalogue = open_late();
  answers_ = true;
  wall_s += Catalogue::kLookEveryS / 2;
  EXPECT_TRUE(catalogue->refresh());
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(CatalogueLateTest, AnotherVersionIsAnErrorOfWhoNamedIt) {
  {
    const auto made = open();
    auto file = SqlDatabase::open(path(), 100);
    ASSERT_TRUE(file->execute("PRAGMA user_version = 99"));
  }
  const auto refused = Catalogue::open_late(path(), {kModel, "tiny"}, [] { return true; }, test_wall_s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace shale
