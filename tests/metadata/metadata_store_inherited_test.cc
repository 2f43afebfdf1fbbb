// What a metadata store knows of prefixes that were computed behind lossy forms.
#include <gtest/gtest.h>

#include "metadata/metadata_store_fixture.h"
#include "metadata/sqlite.h"

namespace shale {
namespace {

// Until it is recorded it is known to one process; in one metric it says nothing of another.
TEST_F(MetadataStoreTest, WhatPrefixesInheritedSurvivesRestartOnceItIsRecorded) {
  {
    const auto metadata_store = open(), other = open();
    metadata_store->inherit(kFirst, 0.9);
    ASSERT_TRUE(metadata_store->record_inherited(kSecond, 0.8));
    EXPECT_FALSE(other->refresh().value_or(true)) << "no reason to read all again that was learned";
    EXPECT_FALSE(other->inherited(kFirst));
    EXPECT_EQ(other->inherited(kSecond), 0.8);
    metadata_store->inherit(kSecond, 0.6);
    ASSERT_TRUE(other->record_inherited(kThird, 0.7));
    EXPECT_FALSE(metadata_store->refresh().value_or(true));
    EXPECT_EQ(metadata_store->inherited(kFirst), 0.9) << "reading what others know loses nothing";
    EXPECT_EQ(metadata_store->inherited(kSecond), 0.6) << "nor what is newer here";
    ASSERT_TRUE(other->record_inherited(kFirst, 0.85));
    ASSERT_TRUE(metadata_store->refresh());
    EXPECT_EQ(metadata_store->inherited(kFirst), 0.85) << "nor is what was known a reason not to ask";
    EXPECT_EQ(metadata_store->quality_for(kThird, Method::full(), 1)->expected, 1);
  }
  const auto metadata_store = open();
  EXPECT_EQ(metadata_store->inherited(kFirst), 0.85);
  EXPECT_EQ(metadata_store->inherited(kSecond), 0.8);
  EXPECT_FALSE(metadata_store->inherited(kUnknown));
  ASSERT_TRUE(metadata_store->measure_in("f1"));
  EXPECT_FALSE(metadata_store->inherited(kSecond));
  ASSERT_TRUE(metadata_store->forget(kSecond));
  EXPECT_FALSE(open()->inherited(kSecond));
  EXPECT_EQ(open()->inherited(kThird), 0.7);
}

// Else what was stored with it would be removed as nobody's.
TEST_F(MetadataStoreTest, WhatPrefixesInheritedIsAskedForAgainWhereItCouldNotBeRead) {
  ASSERT_TRUE(open()->record_inherited(kFirst, 0.9));
  const auto metadata_store = open();
  {
    const auto another = SqlDatabase::open(path(), 1000).value();
    ASSERT_TRUE(another.execute("ALTER TABLE inherited RENAME TO hidden"));
    EXPECT_NE(metadata_store->inherited(kFirst).error().code, ErrorCode::kNotFound);
    ASSERT_TRUE(another.execute("ALTER TABLE hidden RENAME TO inherited"));
  }
  EXPECT_EQ(metadata_store->inherited(kFirst), 0.9);
  EXPECT_EQ(metadata_store->inherited(kUnknown).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace shale
