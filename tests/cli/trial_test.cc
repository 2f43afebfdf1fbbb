// `shale bench soak` and `shale bench chaos`, short, and what they found.
#include <gmock/gmock.h>

#include <numeric>

#include "cli/shale_program.h"
#include "support/s3_server.h"
#include "tiers/redis_server.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class TrialTest : public TinyProgram {
 protected:
  TrialTest() {
    std::filesystem::create_directories(folder());
    environment_.erase("SHALE_MAX_TOKENS");
    environment_.erase("SHALE_LOAD_ALWAYS");
  }
  std::filesystem::path folder() const { return home_.path() / "trials"; }
  Outcome bench(const std::string& which, Words more) {
    Words words = {"bench", which, "--folder", folder(), "--prompts", "8", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(TrialTest, EveryRequestIsAnsweredWhateverHappens) {
  const Outcome outcome = bench("chaos", {"--faults", "50", "--kills", "3", "--seed", "3"});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 16u);  // a line a kind, and the sum
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end() - 1, 0,
                            [](int sum, const auto& row) { return sum + row["times"].template get<int>(); }),
            50);
  const auto& sum = rows.back();
  EXPECT_EQ(sum["passed"], true);
  EXPECT_GT(sum["requests"], 0);
  EXPECT_EQ(sum["wrong"], 0);
  EXPECT_EQ(sum["unanswered"], 0);
  EXPECT_LE(sum["extents_found_damaged"], sum["blobs_damaged"]);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(TrialTest, RedisAndS3MayFailToo) {
  const auto redis = RedisServer::start();
  if (!redis && redis.error().code == ErrorCode::kUnsupported) GTEST_SKIP() << redis.error().message;
  ASSERT_TRUE(redis) << redis.error().message;
  const S3Server s3;
  const std::string tiers = fmt::format("redis://127.0.0.1:{}?timeout=300ms&deadline=600ms,{}", (*redis)->port(),
                                        s3.url("chaos", "&timeout=600ms"));
  const Outcome outcome = bench("chaos", {"--faults", "150", "--kills", "3", "--seed", "5", "--disk-size", "16MiB",
                                          "--remote-size", "4MiB", "--shared", tiers});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 18u);  // a line a kind, one a tier, and the sum
  for (const auto& [row, name] : {std::pair(rows[15], "redis"), std::pair(rows[16], "s3")}) {
    EXPECT_EQ(row["tier"], name);
    EXPECT_GE(row["faults"].size(), 4u) << "several kinds";
    EXPECT_GT(row["written_bytes"], 0) << name;
  }
  EXPECT_GT(rows[15]["write_errors"].get<double>() + rows[16]["write_errors"].get<double>(), 0);
  EXPECT_EQ(rows.back()["passed"], true);
  EXPECT_EQ(rows.back()["wrong"], 0);
  EXPECT_EQ(rows.back()["unanswered"], 0);
}

TEST_F(TrialTest, ATierOfATrialHasAServerWithoutTls) {
  for (const std::string_view url : {"rediss://127.0.0.1", "s3://bucket", "dir:///mnt"}) {
    const Outcome outcome = bench("chaos", {"--faults", "1", "--kills", "0", "--shared", std::string(url)});
    EXPECT_NE(outcome.status, 0) << url;
    EXPECT_THAT(outcome.err, HasSubstr("redis://host:port")) << url;
  }
}

TEST_F(TrialTest, ASoakCountsAndMeasures) {
  const Outcome outcome = bench("soak", {"--minutes", "0.04"});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 13u);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_GT(rows[i]["resident"], 0);
  EXPECT_GT(rows.back()["requests"], 0);
  EXPECT_EQ(rows.back()["wrong"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(TrialTest, KillsAreSomeOfTheFaults) {
  const Outcome outcome = bench("chaos", {"--faults", "2", "--kills", "3"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--kills 3"));
}

TEST_F(TrialTest, AServerWhoseDiskCannotBeListedGoesOnWithoutIt) {
  ASSERT_EQ(run(generate()).status, 0);
  std::filesystem::remove_all(kv() / "store");  // so that it has to list what is there
  const Outcome outcome = run(generate({"--faults", file("faults", "disk fail_lists\n")}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("answers go on without it"));
}

}  // namespace
}  // namespace shale::testing
