// `shale bench serve` against the built program: small loads whose sums must come out.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class BenchServeTest : public TinyProgram {
 protected:
  BenchServeTest() {
    std::string contexts;
    for (int i = 0; i < 3; ++i) {
      nlohmann::json context = {{"id", i}, {"questions", {"What is it?", "How old is it?"}}};
      context["id"] = std::to_string(i);
      context["context"] = "Rock " + std::to_string(i) + ". " + std::string(300, static_cast<char>('a' + i));
      contexts += context.dump() + "\n";
    }
    contexts_ = file("contexts.jsonl", contexts);
    std::filesystem::create_directories(folder());
    environment_.erase("SHALE_MAX_TOKENS");
  }

  std::filesystem::path folder() const { return home_.path() / "servers"; }

  Outcome bench(Words more) {
    Words words = {"bench", "serve", "--contexts", contexts_, "--folder", folder(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  static std::uint64_t cached(const nlohmann::json& row) {
    std::uint64_t sum = 0;
    for (const auto& [source, tokens] : row["cached_tokens"].items()) sum += tokens.get<std::uint64_t>();
    return sum;
  }

  std::filesystem::path contexts_;
};

TEST_F(BenchServeTest, EveryPlannerGetsTheSameRequests) {
  const auto requests = home_.path() / "requests.jsonl", page = home_.path() / "page.html";
  const Outcome outcome = bench({"--rate",           "0.5x,40",
                                 "--requests",       "9",
                                 "--context-tokens", "200",
                                 "--max-tokens",     "4",
                                 "--planner",        "no-reuse,prefill,lru",
                                 "--memory-size",    "8MB",
                                 "--disk-size",      "32MB",
                                 "--remote",         folder(),
                                 "--max-num-seqs",   "3",
                                 "--requests-out",   requests,
                                 "--html",           page});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["requests"], 9);
    EXPECT_EQ(row["failed"], 0);
    EXPECT_EQ(row["prompt_tokens"], rows[0]["prompt_tokens"]);
    EXPECT_EQ(row["computed_tokens"].get<std::uint64_t>() + cached(row), row["prompt_tokens"]);
    EXPECT_GT(row["ttft_p50"], 0);
    EXPECT_GE(row["ttft_p99"], row["ttft_p50"]);
    EXPECT_GE(row["e2e_p50"], row["ttft_p50"]);
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_EQ(row["lossy_requests"], 0);
    if (row["planner"] == "no-reuse") {
      EXPECT_EQ(cached(row), 0u);
      EXPECT_EQ(row["pool_missed"], 9);
    } else {
      EXPECT_GT(row["cached_tokens"]["pool"], 0);
      for (const char* tier : {"memory", "disk", "remote"}) {
        EXPECT_TRUE(row["bytes_read"].contains(tier)) << tier;
        EXPECT_TRUE(row["bytes_written"].contains(tier)) << tier;
      }
    }
  }
  EXPECT_NEAR(rows[0]["rate_to_prefill"], 0.5, 1e-9);
  EXPECT_EQ(rows[3]["rate"], 40);

  std::istringstream lines(read(requests));
  std::map<std::string, std::vector<nlohmann::json>> asked;
  for (std::string line; std::getline(lines, line);) {
    const auto request = nlohmann::json::parse(line);
    EXPECT_EQ(request["completion_tokens"], 4) << line;
    asked[request["planner"]].push_back({request["rate"], request["arrival"], request["context"], request["question"]});
  }
  EXPECT_EQ(asked["no-reuse"].size(), 18u);
  EXPECT_EQ(asked["no-reuse"], asked["lru"]);
  EXPECT_EQ(asked["prefill"], asked["lru"]);
  EXPECT_THAT(read(page), HasSubstr("<polyline"));
  EXPECT_TRUE(std::filesystem::is_empty(folder())) << "servers leave nothing";
}

TEST_F(BenchServeTest, ChatsGoOnWhereTheirAnswersEnded) {
  const auto requests = home_.path() / "requests.jsonl";
  const Outcome outcome = bench({"--rate", "20", "--requests", "8", "--turns", "3", "--turn-gap", "0.02",
                                 "--max-tokens", "3", "--planner", "no-reuse,lru", "--requests-out", requests});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["requests"], 8);
    EXPECT_EQ(row["failed"], 0);
    EXPECT_EQ(row["not_asked"], 0);
    EXPECT_EQ(row["later_turns"], 5);
    EXPECT_GT(row["later_ttft_p50"], 0);
  }
  EXPECT_LT(rows[1]["later_computed_tokens_mean"], rows[0]["later_computed_tokens_mean"]) << "the pool has the chat";

  std::istringstream lines(read(requests));
  std::map<std::string, std::map<std::pair<int, int>, nlohmann::json>> asked;  // by chat and turn
  for (std::string line; std::getline(lines, line);) {
    const auto request = nlohmann::json::parse(line);
    asked[request["planner"]][{request["chat"], request["turn"]}] = request;
  }
  for (const auto& [planner, chats] : asked) {
    EXPECT_EQ(chats.size(), 8u) << planner;
    for (const auto& [at, request] : chats) {
      const auto& [chat, turn] = at;
      EXPECT_EQ(request["context"], asked["lru"][at]["context"]);
      EXPECT_EQ(request["question"], asked["lru"][at]["question"]);
      if (turn == 1) continue;
      const auto& before = chats.at({chat, turn - 1});
      EXPECT_EQ(request["context"], before["context"]);
      EXPECT_GT(request["prompt_tokens"], before["prompt_tokens"]) << "it has all that was said before";
      EXPECT_GT(request["arrival"], before["arrival"].get<double>() + before["e2e"].get<double>());
    }
  }
  EXPECT_EQ(asked["no-reuse"].size(), 8u);
}

TEST_F(BenchServeTest, ServersHaveNoneOfTheUsersOptions) {
  const auto shared = home_.path() / "shared";
  std::filesystem::create_directories(shared);
  environment_["SHALE_REMOTE"] = shared;
  environment_["SHALE_API_KEY"] = "secret";
  file(".config/shale/config.toml", "[serve]\napi-key = \"another\"\nremote = \"" + shared.string() + "\"\n");
  const Outcome outcome = bench({"--rate", "40", "--requests", "4", "--max-tokens", "2", "--planner", "lru"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.object()["failed"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(shared));
}

TEST_F(BenchServeTest, TiersMayBeNamedByUrl) {
  const Outcome outcome = bench({"--rate", "40", "--requests", "4", "--max-tokens", "2", "--planner", "lru", "--tiers",
                                 "memory:?size=8MB,file:{folder}/near?size=8MB,file:{folder}/far?name=far&size=32MB"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto row = outcome.object();
  EXPECT_EQ(row["failed"], 0);
  for (const char* tier : {"memory", "disk", "far"}) EXPECT_TRUE(row["bytes_written"].contains(tier)) << tier;
  EXPECT_TRUE(std::filesystem::is_empty(folder())) << "servers leave nothing";
}

TEST_F(BenchServeTest, CountsRequestsThatFail) {
  const Outcome outcome = bench({"--rate", "2000", "--requests", "8", "--planner", "prefill", "--max-num-seqs", "1",
                                 "--max-queue", "0", "--max-tokens", "20"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto row = outcome.object();
  EXPECT_EQ(row["requests"], 8);
  EXPECT_GE(row["failed"], 1);
  EXPECT_LT(row["failed"], 8);
  EXPECT_EQ(row["computed_tokens"].get<std::uint64_t>() + cached(row), row["prompt_tokens"]);
}

TEST_F(BenchServeTest, ATraceGivesTimesAndLengths) {
  const auto trace = file("trace.csv",
                          "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0,50,3\n"
                          "2023-11-16 18:00:00.1,80,2\n2023-11-16 18:00:00.2,20,5\n");
  const auto requests = home_.path() / "requests.jsonl";
  const Outcome outcome = bench(
      {"--arrivals", trace, "--requests", "3", "--planner", "prefill", "--seeds", "2", "--requests-out", requests});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0]["rate"], 10, 1e-3);
  EXPECT_EQ(rows[1]["seed"], 2);
  std::istringstream lines(read(requests));
  std::vector<int> tokens;
  for (std::string line; std::getline(lines, line);) {
    tokens.push_back(nlohmann::json::parse(line)["completion_tokens"]);
  }
  EXPECT_EQ(tokens, (std::vector<int>{3, 2, 5, 3, 2, 5}));
}

TEST_F(BenchServeTest, ServersThatDoNotStartSayWhy) {
  const auto broken = file("broken.gguf", "no model");
  const Outcome outcome = bench({"--rate", "1", "--calibration", "/nowhere.bin"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere.bin"));
  EXPECT_EQ(bench({"--rate", "1", "--model", broken}).status, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

// Each run ends for want of a rate, once it has looked at what an earlier one left.
TEST_F(BenchServeTest, PlacementGoesOnUnderTheSameOptionsAlone) {
  const auto prior = file("cells.jsonl.metadata_store", "of other cells, which are gone");
  const auto placement = [&](Words more) {
    Words words = {"bench", "placement", "--contexts", contexts_, "--out", home_.path() / "cells.jsonl"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words).err;
  };
  EXPECT_THAT(placement({}), HasSubstr("--rate is missing"));
  EXPECT_FALSE(std::filesystem::exists(prior));
  file("cells.jsonl.metadata_store", "a prior that was put there");
  EXPECT_THAT(placement({}), HasSubstr("--rate is missing"));
  EXPECT_TRUE(std::filesystem::exists(prior));
  EXPECT_THAT(placement({"--exact"}), HasSubstr("other options"));
  EXPECT_THAT(placement({"--settle", "9"}), HasSubstr("--rate is missing"));  // a cell's own
  // The same name, and fewer questions than cells may name.
  const std::string text = read(contexts_);
  file("contexts.jsonl", text.substr(0, text.find('\n') + 1));
  EXPECT_THAT(placement({}), HasSubstr("other options"));
  file("contexts.jsonl", text);
  EXPECT_THAT(placement({}), HasSubstr("--rate is missing"));
  write_model(2);  // likewise
  EXPECT_THAT(placement({}), HasSubstr("other options"));
}

// A server that has nothing to choose measures no prior. Whatever tiers servers have, who rates has none.
TEST_F(BenchServeTest, PlacementWaitsForNoPriorThatNobodyMeasures) {
  const Outcome outcome = run({"bench",        "placement",  "--contexts",
                               contexts_,      "--out",      home_.path() / "cells.jsonl",
                               "--folder",     folder(),     "--rate",
                               "40",           "--requests", "4",
                               "--max-tokens", "2",          "--policy",
                               "shale",        "--methods",  "full",
                               "--remote",     folder(),     "--throttle-remote",
                               "1GB/s,0ms",    "--settle",   "0",
                               "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.object()["requests"], 4);
  EXPECT_EQ(outcome.object()["agreement"], (nlohmann::json{1.0, 1.0, 1.0}));
  EXPECT_THAT(read(home_.path() / "cells.jsonl"), HasSubstr("prior_seconds"));
}

// Their loss is in no form of a context, and a trace's lengths would cut what is rated whole.
TEST_F(BenchServeTest, PlacementHasNothingThatItCouldNotRate) {
  for (const char* option : {"--kv-budget", "--kv-eviction", "--kv-cache-dtype", "--compaction", "--arrivals"}) {
    const Outcome outcome =
        run({"bench", "placement", "--contexts", contexts_, "--out", home_.path() / "cells.jsonl", option, "1"});
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr(option));
  }
}

TEST_F(BenchServeTest, OptionsAreCheckedFirst) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--rate", "fast"}, "'fast'"},
      {{"--rate", "0x"}, "'0x'"},
      {{}, "--rate is missing"},
      {{"--rate", "1", "--planner", "oracle"}, "oracle"},
      {{"--rate", "1", "--max-num-seqs", "0"}, "--max-num-seqs"},
      {{"--rate", "1", "--turns", "0"}, "--turns"},
      {{"--rate", "1", "--prefix-eviction", "belady"}, "hazard"},
      {{"--rate", "1", "--arrivals", "/nowhere.csv"}, "/nowhere.csv"},
      {{"--rate", "1", "--tiers", "memory:?size=8MB", "--remote", folder()}, "--remote"},
      {{"--rate", "1", "--tls-cert", contexts_}, "--tls-cert"},
      {{"--rate", "1", "--tenants", contexts_}, "--tenants"},
  };
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = bench(words);
    EXPECT_NE(outcome.status, 0) << expected;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace shale::testing
