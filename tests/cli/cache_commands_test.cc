// `shale cache …` on what generate stored, without a model.
#include <gmock/gmock.h>

#include <chrono>

#include "cli/shale_program.h"
#include "extents/index_folder.h"

namespace shale::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CacheCommandsTest : public TinyProgram {
 protected:
  void SetUp() override {
    ASSERT_EQ(run(generate()).status, 0);
    model_ = environment_.extract("SHALE_MODEL").mapped();
  }
  std::vector<nlohmann::json> list() { return run({"cache", "ls", "--json"}).objects(); }

  std::string model_;
};

TEST_F(CacheCommandsTest, LsListsWhatIsStored) {
  const auto runs = list();
  ASSERT_FALSE(runs.empty());
  EXPECT_EQ(runs[0]["tier"], "disk");
  EXPECT_EQ(runs[0]["method"], "full");
  EXPECT_EQ(runs[0]["label"], "context.txt");
  EXPECT_EQ(runs[0]["model"], "tiny");
  EXPECT_TRUE(runs[0]["parent"].is_null());
  EXPECT_EQ(runs[0]["tokens"].get<int>() % 16, 0);
  EXPECT_GT(runs[0]["frequency"], 0);
  EXPECT_GT(runs[0]["bytes"], 0);
  const std::string table = run({"cache", "ls"}).out;
  EXPECT_THAT(table, HasSubstr(runs[0]["run"].get<std::string>().substr(0, 12)));
  EXPECT_THAT(table, HasSubstr(" tiny "));
  EXPECT_THAT(table, HasSubstr("context.txt"));
}

TEST_F(CacheCommandsTest, ShowGivesTheTextWithAModel) {
  const std::string name = list()[0]["run"];
  const auto bare = run({"cache", "show", name.substr(0, 8), "--json"}).object();
  EXPECT_EQ(bare["run"], name);
  EXPECT_EQ(run({"cache", "show", "context.txt", "--json"}).object(), bare) << "by what it is from";
  EXPECT_THAT(run({"cache", "show", "report"}).err, HasSubstr("no stored run is called 'report'"));
  ASSERT_FALSE(bare["extents"].empty());
  for (const auto& blob : bare["extents"][0]["blobs"]) EXPECT_TRUE(blob["present"]);
  EXPECT_FALSE(bare.contains("text"));
  const auto full = run({"cache", "show", name, "--model", model_, "--json"}).object();
  EXPECT_THAT(full["text"].get<std::string>(), HasSubstr(read(context_).substr(0, 1000)));
}

TEST_F(CacheCommandsTest, VerifyFindsDamageOnce) {
  EXPECT_EQ(run({"cache", "verify"}).status, 0);
  flip_a_byte(stored_chunk());
  const Outcome kept = run({"cache", "verify", "--keep-broken", "--json"});
  EXPECT_EQ(kept.status, 1);
  EXPECT_EQ(kept.object()["faults"].size(), 1u);
  EXPECT_EQ(run({"cache", "verify"}).status, 1);
  EXPECT_EQ(run({"cache", "verify"}).status, 0);
}

TEST_F(CacheCommandsTest, OnASharedFolderVerifyAndPurgeLeaveWhatIsBeingWritten) {
  const auto remote = home_.path() / "remote";
  ASSERT_EQ(run({"cache", "ls", "--remote", remote}).status, 0);  // makes the folder
  const auto chunk = [&](const std::string& object) {
    std::filesystem::create_directories(remote / "objects" / object.substr(0, 2) / object);
    const auto path = remote / "objects" / object.substr(0, 2) / object / "00000000";
    std::ofstream(path) << std::string(4096, '\0');
    return path;
  };
  const auto young = chunk(std::string(32, 'a')), old = chunk(std::string(32, 'b'));
  std::filesystem::last_write_time(old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(30));
  EXPECT_EQ(run({"cache", "verify", "--remote", remote}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_FALSE(std::filesystem::exists(old)) << "nobody will finish it";
  EXPECT_EQ(run({"cache", "purge", "--remote", remote}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(young));
}

TEST_F(CacheCommandsTest, VerifyLeavesOtherVersionsAlone) {
  const auto object = kv() / "objects/ab" / ("ab" + std::string(30, '0'));
  std::filesystem::create_directories(object);
  for (const char* part : {"manifest", "00000000"}) std::ofstream(object / part) << std::string(4096, '\0');
  EXPECT_THAT(run({"cache", "ls"}).out, AllOf(HasSubstr("cache purge"), Not(HasSubstr("cache verify"))));
  const Outcome verified = run({"cache", "verify"});
  EXPECT_EQ(verified.status, 0);
  EXPECT_THAT(verified.out, HasSubstr("1 extents or objects are of another version"));
  EXPECT_TRUE(std::filesystem::exists(object / "00000000"));
  EXPECT_EQ(run({"cache", "purge"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(object / "00000000"));
}

// Two documents that begin alike: the second run's blocks follow the first's.
TEST_F(CacheCommandsTest, RmTakesWhatStandsOnARunWithIt) {
  const auto longer = file("longer.txt", read(context_) + " And there is more to be said of shale, and of slate.");
  environment_["SHALE_MODEL"] = model_;
  ASSERT_EQ(run({"generate", "--context", longer, "--prompt", "What is it?", "--json"}).status, 0);
  const auto runs = list();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1]["label"], "longer.txt");
  EXPECT_EQ(runs[1]["parent"], runs[0]["run"]);
  EXPECT_LT(runs[1]["tokens"], runs[0]["tokens"]) << "what they share is stored once";
  ASSERT_EQ(run({"cache", "rm", runs[0]["run"].get<std::string>()}).status, 0);
  EXPECT_TRUE(list().empty());
}

TEST_F(CacheCommandsTest, LsCreatesNothing) {
  const auto nowhere = home_.path() / "nowhere";
  EXPECT_EQ(run({"cache", "ls", "--cache-dir", nowhere}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(nowhere));
}

TEST_F(CacheCommandsTest, RmRemovesOneRun) {
  const std::string name = list()[0]["run"];
  const Outcome removed = run({"cache", "rm", name, "--json"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_GT(removed.object()["removed_bytes"], 0);
  for (const auto& row : list()) EXPECT_NE(row["run"], name);
  EXPECT_EQ(run({"cache", "rm", name}).status, 1);
}

TEST_F(CacheCommandsTest, WhatARunningProcessHasPinnedStays) {
  const Outcome shown = run({"cache", "show", list()[0]["run"].get<std::string>(), "--json"});
  auto folder = IndexFolder::open(kv());
  ASSERT_TRUE(folder);
  IndexRecord lease;
  lease.type = IndexRecord::Type::kLease;
  lease.time_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  lease.name = Hash128::parse(shown.object()["extents"][0]["name"].get<std::string>()).value();
  lease.until_s = lease.time_s + 60;
  (*folder)->append(lease);
  ASSERT_TRUE((*folder)->flush());
  const auto before = list();
  EXPECT_EQ(before[0]["pinned"], true);
  const std::string name = before[0]["run"];
  const Outcome refused = run({"cache", "rm", name});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--pinned"));
  EXPECT_EQ(run({"cache", "purge"}).status, 0);
  ASSERT_EQ(list().size(), 1u);
  EXPECT_EQ(run({"cache", "rm", name, "--pinned"}).status, 0);
  EXPECT_TRUE(list().empty());
}

TEST_F(CacheCommandsTest, PurgeRemovesWhatAModelHas) {
  EXPECT_EQ(run({"cache", "purge", "--model", "another", "--json"}).object()["removed_extents"], 0);
  EXPECT_FALSE(list().empty());
  EXPECT_EQ(run({"cache", "purge", "--json"}).status, 0);
  EXPECT_TRUE(list().empty());
}

}  // namespace
}  // namespace shale::testing
