// From URLs to tiers.
#include "tiers/tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"
#include "tiers/blobs.h"

namespace shale::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::vector<std::string_view>& urls) {
  const auto specs = parse_tiers(urls);
  EXPECT_EQ(code_of(specs), ErrorCode::kInvalidArgument);
  return specs ? "" : specs.error().message;
}

TEST(TiersTest, AUrlSaysWhatATierIs) {
  const auto specs = parse_tiers({"memory:?size=128MB", "file:///folder?size=256MB&throttle=hdd&io_uring=off&sync",
                                  "dir:shared/kv?name=nas&throttle=200MB/s,8ms"})
                         .value();
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[0].name, "memory");
  EXPECT_EQ(specs[0].capacity_bytes, 128'000'000u);
  EXPECT_FALSE(specs[0].throttle);
  EXPECT_EQ(specs[1].name, "disk");
  EXPECT_EQ(specs[1].place, "/folder");
  EXPECT_EQ(specs[1].capacity_bytes, 256'000'000u);
  EXPECT_EQ(specs[1].throttle->name, "hdd");
  EXPECT_TRUE(specs[1].flag("direct_io"));
  EXPECT_FALSE(specs[1].flag("io_uring"));
  EXPECT_TRUE(specs[1].flag("sync"));
  EXPECT_EQ(specs[2].name, "nas");
  EXPECT_EQ(specs[2].place, "shared/kv");
  EXPECT_EQ(specs[2].capacity_bytes, kUnlimited);
  EXPECT_EQ(specs[2].throttle->latency_s, 0.008);
}

TEST(TiersTest, NamelessOnesOfASchemeAreNumberedAroundThoseWithNames) {
  const auto specs =
      parse_tiers({"dir:/a", "dir:/b?name=remote2", "dir:/c", "memory:?size=unlimited", "dir:/d"}).value();
  std::vector<std::string> names;
  for (const TierSpec& spec : specs) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"remote", "remote2", "remote3", "memory", "remote4"}));
}

TEST(TiersTest, RefusalsSayWhatThereIs) {
  EXPECT_THAT(refusal({"ftp://x"}), AllOf(HasSubstr("'ftp:'"), HasSubstr("dir:///folder"), HasSubstr("memory:?size=")));
  EXPECT_THAT(refusal({"file:/a?size=1GB&speed=3"}),
              AllOf(HasSubstr("speed"), HasSubstr("name, size, throttle, direct_io, io_uring, sync")));
  EXPECT_THAT(refusal({"memory:?size=1GB&sync"}),
              AllOf(HasSubstr("sync"), HasSubstr("there are name, size, throttle")));
  EXPECT_THAT(refusal({"memory:?size=lots"}), HasSubstr("'lots' is not a size"));
  EXPECT_THAT(refusal({"memory:"}), HasSubstr("size"));
  EXPECT_THAT(refusal({"file:/a"}), HasSubstr("size=unlimited"));
  EXPECT_THAT(refusal({"memory:/a?size=1GB"}), HasSubstr("lies nowhere"));
  EXPECT_THAT(refusal({"dir:"}), HasSubstr("names no folder"));
  EXPECT_THAT(refusal({"file://folder/x?size=1GB"}), HasSubstr("three slashes"));
  EXPECT_THAT(refusal({"file:/a?size=1GB&sync=maybe"}), HasSubstr("neither on nor off"));
  EXPECT_THAT(refusal({"dir:/a?throttle=floppy"}), HasSubstr("nfs-1g"));
  EXPECT_THAT(refusal({"dir:/a?name="}), HasSubstr("not a name"));
  EXPECT_THAT(refusal({"dir:/a?name=a%22b"}), HasSubstr("not a name"));
  EXPECT_THAT(refusal({"dir:/a?name=pool"}), HasSubstr("engine's own memory"));
  EXPECT_THAT(refusal({"dir:/a?name=x", "dir:/b?name=x"}), HasSubstr("two tiers are called 'x'"));
  EXPECT_THAT(refusal({"dir:/a/b", "file:/a/./b?size=1GB"}), HasSubstr("two tiers lie in"));
  EXPECT_THAT(refusal({"file:/a?size=1GB&size=2GB"}), HasSubstr("twice"));
}

TEST(TiersTest, APlaceIsTheSameHoweverItIsWritten) {
  EXPECT_THAT(refusal({"dir:/a/b", "dir:/a/b/"}), HasSubstr("two tiers lie in"));
  const std::string here = "dir:" + (std::filesystem::current_path() / "a").string();
  EXPECT_THAT(refusal({"file:a?size=1GB", here}), HasSubstr("two tiers lie in"));
  for (const char* other : {"redis://h:6379", "redis://h/0", "redis://u@h", "rediss://h/", "redis://h?prefix=shale"}) {
    EXPECT_THAT(refusal({"redis://h", other}), HasSubstr("two tiers lie in")) << other;
  }
  for (const char* other : {"redis://h:6380", "redis://h/1", "redis://g", "redis://h?prefix=b", "s3://bucket"}) {
    EXPECT_TRUE(parse_tiers({"redis://h", other})) << other;
  }
}

TEST(TiersTest, RefusalsShowNoPasswords) {
  for (const char* url : {"redis://:top?word@h", "redis://u:top?word@h", "rediss://u:1%top?word@h", "s3://u:topword@h",
                          "s3://bucket?endpoint=http://u:topword@h", "redis://u%3atopword@h",
                          "file://u:topword@h/x?size=1GB", "ftp://u:topword@h"}) {
    EXPECT_THAT(refusal({url}), ::testing::Not(::testing::ContainsRegex("top|word@"))) << url;
  }
}

TEST(TiersTest, OpensWhatItSays) {
  const TemporaryFolder folder;
  const RealClock clock;
  const auto tier =
      make_tier("file://" + (folder.path() / "kv").string() + "?size=1MiB&name=fast&throttle=nvme", clock).value();
  EXPECT_EQ(tier->name(), "fast");
  EXPECT_EQ(tier->capacity_bytes(), 1u << 20);
  EXPECT_EQ(tier->emulated(), "nvme");
  EXPECT_THAT(tier->describe(), HasSubstr("fast: "));
  EXPECT_TRUE(tier->persistent());
  EXPECT_FALSE(make_tier("memory:?size=1MiB", clock).value()->persistent());
  EXPECT_EQ(code_of(make_tier("memory:?size=1MiB&x", clock)), ErrorCode::kInvalidArgument);
}

TEST(TiersTest, EverySchemeIsDescribed) {
  for (const TierScheme& scheme : tier_schemes()) {
    EXPECT_FALSE(scheme.name.empty()) << scheme.scheme;
    EXPECT_FALSE(scheme.meaning.empty()) << scheme.scheme;
    for (const TierScheme::Flag& flag : scheme.flags) EXPECT_FALSE(flag.meaning.empty()) << flag.name;
    for (const TierScheme::Text& text : scheme.texts) {
      EXPECT_FALSE(text.meaning.empty() || text.value.empty()) << text.name;
    }
    EXPECT_TRUE(parse_tiers({scheme.example()})) << scheme.example();
  }
}

}  // namespace
}  // namespace shale::testing
