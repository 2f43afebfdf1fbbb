#include "io/s3_xml.h"

#include <gtest/gtest.h>

#include "tiers/blobs.h"

namespace shale::testing {
namespace {

TEST(S3Xml, ReadsAListWhateverElseItSays) {
  const auto listing = parse_s3_listing(R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><!-- a > b -->
  <Name>bucket</Name><Prefix/><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>
  <Contents><Key>a&amp;b &#228;&#xe4;</Key><Size>4096</Size><Owner><ID>x</ID><Key>not this</Key></Owner></Contents>
  <Contents><Size>8192</Size><Key>c</Key></Contents>
  <CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>
  <NextContinuationToken>1/=&quot;</NextContinuationToken>
</ListBucketResult>)");
  ASSERT_TRUE(listing) << listing.error().message;
  ASSERT_EQ(listing->objects.size(), 2u);
  EXPECT_EQ(listing->objects[0].key, "a&b ää");
  EXPECT_EQ(listing->objects[0].bytes, 4096u);
  EXPECT_EQ(listing->objects[1].key, "c");
  EXPECT_EQ(listing->next, "1/=\"");
}

TEST(S3Xml, RefusesWhatIsNoList) {
  constexpr std::string_view kBad[] = {
      "",
      "<html></html>",
      "<ListBucketResult>",
      "<ListBucketResult></Error>",
      "<ListBucketResult/><ListBucketResult/>",
      "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
      "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
      "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
      "<ListBucketResult>&unknown;</ListBucketResult>",
      "<ListBucketResult>&#1114112;</ListBucketResult>",
      "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult/>",
  };
  for (const std::string_view text : kBad) EXPECT_EQ(code_of(parse_s3_listing(text)), ErrorCode::kCorrupt) << text;
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_EQ(code_of(parse_s3_listing(deep)), ErrorCode::kCorrupt);
}

TEST(S3Xml, ReadsErrors) {
  const S3Complaint complaint = parse_s3_complaint(
      "<Error><Code>AuthorizationHeaderMalformed</Code><Message>wrong</Message><Region>eu-west-1</Region></Error>");
  EXPECT_EQ(complaint.code, "AuthorizationHeaderMalformed");
  EXPECT_EQ(complaint.message, "wrong");
  EXPECT_EQ(complaint.region, "eu-west-1");
  EXPECT_EQ(parse_s3_complaint("502 Bad Gateway").code, "");
}

}  // namespace
}  // namespace shale::testing
