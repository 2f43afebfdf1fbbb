#include "server/tenants.h"

#include <gmock/gmock.h>

#include <vector>

namespace shale {
namespace {

using ::testing::HasSubstr;

// printf secret | sha256sum
constexpr std::string_view kSecret = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
// printf other | sha256sum
constexpr std::string_view kOther = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

std::string lines(std::initializer_list<std::string> each) {
  std::string text;
  for (const std::string& line : each) text += line + "\n";
  return text;
}

TEST(TenantsTest, AreReadLineByLine) {
  const auto tenants = parse_tenants(
      lines({"# who may", "", "  ann\t" + std::string(kSecret) + "\r", "bob.2_b-x " + std::string(kOther)}));
  ASSERT_TRUE(tenants) << tenants.error().message;
  ASSERT_EQ(tenants->size(), 2u);
  EXPECT_EQ((*tenants)[1].name, "bob.2_b-x");
  const Tenants known(*tenants, 0);
  EXPECT_EQ(known.find("secret"), 0);
  EXPECT_EQ(known.find("other"), 1);
  for (const char* wrong : {"", "Secret", "secre", "secrets"}) EXPECT_EQ(known.find(wrong), -1) << wrong;
}

TEST(TenantsTest, WhatIsNoTenantIsRefusedByLine) {
  const std::string secret(kSecret);
  for (const std::string& wrong : {std::string("ann"), "ann " + secret.substr(1), "ann " + secret + " more",
                                   "an/n " + secret, std::string(65, 'a') + " " + secret, "ann g" + secret.substr(1),
                                   "bob " + secret, "ann " + std::string(kOther)}) {
    const auto tenants = parse_tenants(lines({"ann " + secret, wrong}));
    ASSERT_FALSE(tenants) << wrong;
    EXPECT_EQ(tenants.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(tenants.error().message, HasSubstr("line 2")) << wrong;
  }
  EXPECT_FALSE(parse_tenants("# nobody\n"));
  EXPECT_FALSE(parse_tenants(""));
}

TEST(TenantsTest, ALineMayHaveBoundsOfItsOwn) {
  const std::string secret(kSecret), other(kOther);
  const auto tenants = parse_tenants(lines({"ann " + secret + " weight=2.5\tbytes=1.5GB requests=0", "bob " + other}));
  ASSERT_TRUE(tenants) << tenants.error().message;
  EXPECT_EQ((*tenants)[0].requests_max, 0u);
  EXPECT_EQ((*tenants)[0].bytes_max, 1'500'000'000u);
  EXPECT_EQ((*tenants)[0].weight, 2.5);
  EXPECT_FALSE((*tenants)[1].requests_max);
  EXPECT_FALSE((*tenants)[1].bytes_max);
  EXPECT_EQ((*tenants)[1].weight, 1);
  for (const char* wrong :
       {"more", "requests", "requests=", "requests=-1", "requests=1.5", "bytes=many", "weight=0", "weight=nan",
        "weight=-1", "weight=1e9", "requests=1 requests=1", "bytes=1 bytes=2", "=", "size=3"}) {
    const auto read = parse_tenants(lines({"ann " + secret, "bob " + other + " " + wrong}));
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().message, HasSubstr("line 2")) << wrong;
  }
}

TEST(TenantsTest, EachHasItsShareInFlight) {
  Tenants tenants(parse_tenants(lines({"ann " + std::string(kSecret), "bob " + std::string(kOther)})).value(), 2);
  Tenants::Places first, second, third;
  EXPECT_TRUE(tenants.admit(0, 1, first) && tenants.admit(0, 1, second));
  EXPECT_FALSE(tenants.admit(0, 1, third));
  EXPECT_TRUE(tenants.admit(1, 1, third)) << "another's";
  EXPECT_EQ(tenants.metrics()[0].running, 2u);
  EXPECT_EQ(tenants.metrics()[0].refused, 1u);
  EXPECT_EQ(tenants.metrics()[0].requests, 3u);
  second.clear();
  EXPECT_TRUE(tenants.admit(0, 1, second));
  third.clear();
  EXPECT_EQ(tenants.metrics()[1].running, 0u);
}

TEST(TenantsTest, RequestsThatComeTogetherAllHavePlacesOrNone) {
  Tenants tenants(parse_tenants(lines({"ann " + std::string(kSecret)})).value(), 3);
  Tenants::Places one, several;
  EXPECT_TRUE(tenants.admit(0, 1, one) && tenants.admit(0, 1, several));
  EXPECT_FALSE(tenants.admit(0, 3, several));
  EXPECT_TRUE(several.empty());
  EXPECT_EQ(tenants.metrics()[0].running, 1u);
  EXPECT_EQ(tenants.metrics()[0].requests, 4u);
  EXPECT_EQ(tenants.metrics()[0].refused, 3u);
  EXPECT_TRUE(tenants.admit(0, 2, several));
  EXPECT_EQ(tenants.metrics()[0].running, 3u);
  several.pop_back();
  EXPECT_EQ(tenants.metrics()[0].running, 2u) << "each is given back by itself";
}

}  // namespace
}  // namespace shale
