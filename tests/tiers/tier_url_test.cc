#include "tier/tier_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TierUrlTest, HasSchemePlaceAndOptions) {
  const auto url = parse_tier_url("S3://bucket:99/a/b?size=1GiB&sync&empty=&name=x=y").value();
  EXPECT_EQ(url.scheme, "s3");
  EXPECT_EQ(url.authority, "bucket:99");
  EXPECT_EQ(url.path, "/a/b");
  ASSERT_EQ(url.options.size(), 4u);
  EXPECT_EQ(url.options[0].name, "size");
  EXPECT_EQ(url.options[0].value, "1GiB");
  EXPECT_EQ(url.options[1].value, "on") << "an option without a value";
  EXPECT_EQ(url.options[2].value, "");
  EXPECT_EQ(url.options[3].value, "x=y");
}

TEST(TierUrlTest, MayNameNoPlaceOrOneOfThisMachine) {
  EXPECT_EQ(parse_tier_url("memory:")->path, "");
  EXPECT_EQ(parse_tier_url("memory:?")->options.size(), 0u);
  EXPECT_EQ(parse_tier_url("file:///a/b")->path, "/a/b");
  EXPECT_EQ(parse_tier_url("file:///a/b")->authority, "");
  EXPECT_EQ(parse_tier_url("file:a/b")->path, "a/b");
  EXPECT_EQ(parse_tier_url("file:/a/b")->path, "/a/b");
}

TEST(TierUrlTest, DecodesPercentAndNothingElse) {
  const auto url = parse_tier_url("file:///my%20cache/50%25/%3f?na%6De=a%26b+c").value();
  EXPECT_EQ(url.path, "/my cache/50%/?");
  EXPECT_EQ(url.options[0].name, "name");
  EXPECT_EQ(url.options[0].value, "a&b+c");
}

TEST(TierUrlTest, RefusesWhatIsNone) {
  for (const auto& [text, what] : {std::pair{"", "no scheme"},
                                   {"/a/b", "no scheme"},
                                   {":x", "no scheme"},
                                   {"3d:x", "no scheme"},
                                   {"file", "no scheme"},
                                   {"fi le:/a", "no scheme"},
                                   {"file:/a%", "hexadecimal"},
                                   {"file:/a%2", "hexadecimal"},
                                   {"file:/a%2g", "hexadecimal"},
                                   {"file:/a%00b", "control character"},
                                   {"file:/a\nb", "control character"},
                                   {"file:/a?x=%0a", "control character"},
                                   {"file:/a#b", "fragment"},
                                   {"file:/a?=x", "name=value"},
                                   {"file:/a?x=1&&y=2", "name=value"},
                                   {"file:/a?x=1&y=2&x=1", "'x' twice"}}) {
    const auto url = parse_tier_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(url.error().message, HasSubstr(what)) << text;
  }
}

TEST(TierUrlTest, AListIsCutAtCommasBeforeASchemeAlone) {
  EXPECT_THAT(split_tier_urls("memory:?size=1GB, file:///a?throttle=200MB/s,8ms,dir:///b"),
              ElementsAre("memory:?size=1GB", "file:///a?throttle=200MB/s,8ms", "dir:///b"));
  EXPECT_THAT(split_tier_urls("file:///a,b/c"), ElementsAre("file:///a,b/c"));
  EXPECT_THAT(split_tier_urls(""), ElementsAre(""));
}

TEST(TierUrlTest, MessagesShowNoSecrets) {
  EXPECT_EQ(without_secrets("redis://me:secret@host:1/2?size=1GB"), "redis://me:***@host:1/2?size=1GB");
  EXPECT_EQ(without_secrets("s3://b/p?secret=abc&region=x&session_token=d"),
            "s3://b/p?secret=***&region=x&session_token=***");
  EXPECT_EQ(without_secrets("redis://h?password_file=/etc/p"), "redis://h?password_file=/etc/p");
  EXPECT_EQ(without_secrets("file:///a@b?size=1GB"), "file:///a@b?size=1GB");
  EXPECT_EQ(without_secrets("no scheme"), "no scheme");
  const auto refused = parse_tier_url("redis://me:secret@host/%zz");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("secret"), std::string::npos) << refused.error().message;
  const auto percent = parse_tier_url("redis://me:50%off@host");
  ASSERT_FALSE(percent);
  EXPECT_EQ(percent.error().message.find("off"), std::string::npos) << percent.error().message;
}

TEST(TierUrlTest, PasswordsAreFoundWhateverIsInThem) {
  for (const auto* url :
       {"redis://me:secret@host", "redis://:pa?ss@host", "redis://:pa/ss@host/2", "redis://:p@ss@host",
        "redis://me:12?34@host", "redis://me:pa?x=y@host", "file://me:pw@host/x"}) {
    EXPECT_TRUE(has_password(url)) << url;
    EXPECT_THAT(without_secrets(url), HasSubstr(":***@host")) << url;
  }
  for (const auto* url :
       {"redis://me@host:1/2", "redis://host:1?password_file=/a@b", "file:///a:b@c",
        "redis://host?password_file=/a:b@c", "redis://[::1]:7?ca=/a@b", "memory:?size=1GB&name=a@b"}) {
    EXPECT_FALSE(has_password(url)) << url;
    EXPECT_EQ(without_secrets(url), url);
  }
  EXPECT_EQ(without_secrets("s3://b?endpoint=http://me:pw@h&ca=x"), "s3://b?endpoint=http://me:***@h&ca=x");
}

}  // namespace
}  // namespace shale
