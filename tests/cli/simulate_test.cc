// `shale simulate`: its contract with programs, its forms of output, and what it refuses.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "cli/shale_program.h"
#include "support/test_data.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SimulateCommand : public ShaleProgram {
 protected:
  const std::string branches_ = test_data() / "traces/branches.jsonl", chats_ = test_data() / "traces/chats.jsonl";
};

TEST_F(SimulateCommand, JsonHasExactlyTheFieldsOfItsContract) {
  const Outcome outcome =
      run({"simulate", "--trace", branches_, "--policy", "lru", "--scheduler", "fifo", "--blocks", "10", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto row = nlohmann::ordered_json::parse(outcome.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"trace", "policy", "scheduler", "blocks", "requests", "blocks_requested",
                                            "blocks_reused", "hit_ratio", "seconds"}));
  EXPECT_EQ(row["trace"], "branches.jsonl");
  EXPECT_EQ(row["blocks"], 10);
  EXPECT_EQ(row["requests"], 60);
  EXPECT_DOUBLE_EQ(row["hit_ratio"], row["blocks_reused"].get<double>() / row["blocks_requested"].get<double>());
}

TEST_F(SimulateCommand, ListsMakeARunForEachCombinationInTheirOrder) {
  const Outcome outcome = run({"simulate", "--trace", branches_ + "," + chats_, "--policy", "lru,optimum",
                               "--scheduler", "shortest,fifo", "--blocks", "20,5", "--threads", "3", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 16u);
  std::size_t nth = 0;
  for (const char* trace : {"branches.jsonl", "chats.jsonl"}) {
    for (const char* policy : {"lru", "optimum"}) {
      for (const char* scheduler : {"shortest", "fifo"}) {
        for (const int blocks : {20, 5}) {
          EXPECT_EQ(rows[nth]["trace"], trace);
          EXPECT_EQ(rows[nth]["policy"], policy);
          EXPECT_EQ(rows[nth]["scheduler"], scheduler);
          EXPECT_EQ(rows[nth]["blocks"], blocks);
          ++nth;
        }
      }
    }
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GE(rows[i + 4]["hit_ratio"], rows[i]["hit_ratio"]);  // the optimum
}

TEST_F(SimulateCommand, ATraceAloneGivesATableUpToEverything) {
  const Outcome outcome = run({"simulate", "--trace", chats_});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("chats.jsonl, fifo: 32 requests"));
  EXPECT_THAT(outcome.out, HasSubstr("BLOCKS"));
  EXPECT_THAT(outcome.out, HasSubstr("optimum"));
}

TEST_F(SimulateCommand, CsvHasALineARun) {
  const Outcome outcome = run({"simulate", "--trace", chats_, "--policy", "lru,lfu", "--blocks", "10", "--csv"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(
      outcome.out.starts_with("trace,policy,scheduler,blocks,requests,blocks_requested,blocks_reused,hit_ratio,"
                              "seconds\nchats.jsonl,lru,fifo,10,"
                              "32,"));
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 3);
}

TEST_F(SimulateCommand, ChartsAreSelfContained) {
  const auto html = home_.path() / "report.html", svg = home_.path() / "report.svg";
  const Outcome outcome = run({"simulate", "--trace", chats_, "--policy", "lru,optimum", "--blocks", "5,10,20",
                               "--html", html, "--svg", svg, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(outcome.objects().at(0).contains("timeline"));
  for (const auto& path : {html, svg}) {
    const std::string text = read(path);
    EXPECT_THAT(text, HasSubstr("Hit ratio against size"));
    EXPECT_THAT(text, HasSubstr("Hit ratio over time"));
    EXPECT_THAT(text, HasSubstr("Reuse distance"));
    EXPECT_THAT(text, HasSubstr(">optimum</text>"));
    EXPECT_THAT(text, Not(HasSubstr("nan")));
    EXPECT_THAT(text, Not(HasSubstr(">-0<")));
    EXPECT_THAT(text, Not(HasSubstr("src=")));
    EXPECT_THAT(text, Not(HasSubstr("href=")));
  }
}

TEST_F(SimulateCommand, ATimelineIsPrintedOnDemand) {
  const Outcome outcome =
      run({"simulate", "--trace", chats_, "--policy", "lru", "--blocks", "10", "--timeline", "4", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto timeline = outcome.object()["timeline"];
  ASSERT_EQ(timeline.size(), 4u);
  EXPECT_EQ(timeline[3]["requests"], 32);
}

TEST_F(SimulateCommand, OnlineTellsWaitingTimes) {
  const Outcome outcome = run({"simulate", "--trace", chats_, "--policy", "lru", "--scheduler", "fifo,shortest",
                               "--blocks", "10", "--online", "--prefill-rate", "100", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    EXPECT_LE(row["waiting_seconds"]["p50"], row["waiting_seconds"]["p99"]);
    EXPECT_LT(row["waiting_seconds"]["p50"], row["ttft_seconds"]["p50"]);
    EXPECT_LE(row["busy"], 1.0);
  }
  EXPECT_LT(rows[1]["waiting_seconds"]["p50"], rows[0]["waiting_seconds"]["p50"]);  // the short ones go first
  EXPECT_THAT(run({"simulate", "--trace", chats_, "--blocks", "10", "--online"}).out, HasSubstr("FIRST TOKEN"));
}

TEST_F(SimulateCommand, TheOptimumIsLeftOutWhereItHasNoMeaning) {
  const Words words = {"simulate", "--trace", chats_, "--scheduler", "reuse", "--blocks", "10", "--json", "--policy"};
  Words beside = words, alone = words;
  beside.emplace_back("lru,optimum");
  alone.emplace_back("optimum");
  const Outcome outcome = run(beside);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.object()["policy"], "lru");
  EXPECT_THAT(outcome.err, HasSubstr("optimum"));
  EXPECT_EQ(run(alone).status, 2);
}

TEST_F(SimulateCommand, WhatIsWrongIsSaid) {
  const std::vector<std::tuple<Words, int, std::string>> cases = {
      {{"simulate"}, 2, "--trace"},
      {{"simulate", "--trace", "/nowhere.jsonl"}, 1, "/nowhere.jsonl"},
      {{"simulate", "--trace", chats_, "--policy", "psychic"}, 2, "psychic"},
      {{"simulate", "--trace", "/nowhere.jsonl", "--policy", "psychic"}, 2, "psychic"},
      {{"simulate", "--trace", chats_, "--scheduler", "bribes"}, 2, "bribes"},
      {{"simulate", "--trace", chats_, "--blocks", "0"}, 2, "0 blocks"},
      {{"simulate", "--trace", chats_, "--blocks", "many"}, 2, "--blocks"},
      {{"simulate", "--trace", chats_, "--window", "-1"}, 2, "window"},
      {{"simulate", "--trace", chats_, "--online", "--servers", "0"}, 2, "servers"},
      {{"simulate", "--trace", chats_, "--servers", "4"}, 2, "--online"},
      {{"simulate", "--trace", chats_, "--prefill-rate", "8000"}, 2, "--online"},
      {{"simulate", "--trace", chats_, "--cached-rate", "8000"}, 2, "--online"},
      {{"simulate", "--trace", chats_, "--decode-rate", "80"}, 2, "--online"},
      {{"simulate", "--trace", chats_, "--online", "--window", "3"}, 2, "--window"},
      {{"simulate", "--trace", chats_, "--hybrid-length", "2"}, 2, "--hybrid-length"},
      {{"simulate", "--trace", chats_, "--blocks", "10", "--json", "--csv"}, 2, "--csv"},
      {{"simulate", "--trace", chats_, "--blocks", "10", "--svg", "/nowhere/x.svg"}, 1, "/nowhere/x.svg"},
      {{"simulate", "--trace", file("bad.jsonl", "{\"timestamp\": 0, \"hash_ids\": [1,]}\n")}, 2, "bad.jsonl:1"},
      {{"simulate", "reproduce", "--traces", home_.path()}, 1, "Mooncake"},
  };
  for (const auto& [words, status, expected] : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, status) << words.back() << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

TEST_F(SimulateCommand, ReproduceComparesCellByCell) {
  const char* data = std::getenv("SHALE_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "SHALE_DATA_DIR is not set: the Mooncake traces are not here";
  const auto folder = std::filesystem::path(data) / "traces";
  const Outcome table = run({"simulate", "reproduce", "--traces", folder});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("LRU     40 of 40 cells equal"));
  EXPECT_THAT(table.out, HasSubstr("hybrid_tabulated"));
  const Outcome json = run({"simulate", "reproduce", "--traces", folder, "--json"});
  EXPECT_EQ(json.objects().size(), 120u);
}

TEST_F(SimulateCommand, FleetsHaveARowForEachSizeAndRouterAndACost) {
  const auto prices = file("prices.json", R"({"engine_hour": 3.6, "network_gb": 1})");
  const Words fleet = {"simulate", "fleet",       "--trace", branches_,       "--engines",
                       "1,3",      "--disk-size", "0",       "--memory-size", "1GB"};
  Words priced = fleet;
  priced.insert(priced.end(), {"--prices", prices, "--json"});
  const Outcome outcome = run(priced);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[4]["engines"], 3);
  EXPECT_EQ(rows[4]["router"], "prefix");
  for (const auto& row : rows) {
    EXPECT_EQ(row["requests"], 60);
    const double whole = 1e-3 * row["engines"].get<double>() * row["duration_seconds"].get<double>() +
                         1e-9 * row["network_bytes"].get<double>();
    EXPECT_NEAR(row["cost_per_million_requests"].get<double>(), whole / 60 * 1e6, 1e-6 * whole / 60 * 1e6);
  }
  EXPECT_THAT(run(fleet).out, HasSubstr("round_robin"));
}

TEST_F(SimulateCommand, MeasuredHardwareIsEmulatedFromAFile) {
  // 10 ms a token computed; what is found is there at once.
  const auto made = file("mine.json", R"({"kv_bytes_per_token": 100, "prefill_s_per_token": 0.01,
      "prefill_s_per_pair": 0, "tiers": [{"name": "memory", "latency_s": 0, "read_bytes_per_s": 1e15}]})");
  for (const Words& command : {Words{"simulate", "tiers"},
                               Words{"simulate", "fleet", "--engines", "1", "--router", "events", "--share", "off"}}) {
    Words words = command;
    words.insert(words.end(),
                 {"--trace", branches_, "--emulate", made, "--planner", "lru", "--servers", "0", "--json"});
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto row = outcome.objects().at(0);
    EXPECT_EQ(row["hardware"], "mine");
    EXPECT_LT(row["tokens_computed"], row["tokens"]);
    EXPECT_NEAR(row["ttft_mean_seconds"].get<double>() * row["requests"].get<double>(),
                0.01 * row["tokens_computed"].get<double>(), 1e-6);
  }
}

// The store of this file has another name than those of the presets.
TEST_F(SimulateCommand, TiersAreSizedByTheirNamesAndTheLowestIsTheStore) {
  const auto made = file("mine.json", R"({"kv_bytes_per_token": 100, "prefill_s_per_token": 0.01,
      "prefill_s_per_pair": 0, "tiers": [{"name": "memory", "bytes": 1000000, "latency_s": 0, "read_bytes_per_s": 1e15},
      {"name": "redis", "latency_s": 0, "read_bytes_per_s": 1e9}]})");
  const auto simulated = [&](const char* command, const Words& more) {
    Words words = {"simulate", command, "--trace", branches_, "--emulate", made, "--planner", "lru", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  for (const char* command : {"tiers", "fleet"}) {
    const Outcome outcome = simulated(command, {"--disk-size", "5GB"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("mine has no tier 'disk' to size: there are memory, redis"));
    EXPECT_EQ(simulated(command, {"--disk-size", "0"}).status, 0) << "there is none";
  }
  EXPECT_EQ(simulated("tiers", {"--remote-size", "5GB"}).status, 2);
  const auto fleet = [&](const char* share, const Words& more) {
    Words words = {"--engines", "4", "--router", "round_robin", "--share", share};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = simulated("fleet", words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object();
  };
  EXPECT_EQ(fleet("off", {})["tiers"].size(), 1u);
  EXPECT_EQ(fleet("on", {})["tiers"].size(), 2u);
  EXPECT_NE(fleet("on", {"--link", "1KB"})["ttft_mean_seconds"], fleet("on", {})["ttft_mean_seconds"]);
}

// Nothing is left of the disk; over such a link computing is sooner than loading.
TEST_F(SimulateCommand, TheLinkIsOfTheTierThatIsTheLowestInTheEnd) {
  const auto made = file("mine.json", R"({"kv_bytes_per_token": 100, "prefill_s_per_token": 0.01,
      "prefill_s_per_pair": 0, "tiers": [{"name": "memory", "latency_s": 0, "read_bytes_per_s": 1e15},
      {"name": "disk", "bytes": 1000000, "latency_s": 0, "read_bytes_per_s": 1e9}]})");
  const auto ttft_s = [&](const Words& more) {
    Words words = {"simulate",  "fleet", "--trace",  branches_,     "--emulate",   made, "--planner", "lru",
                   "--engines", "4",     "--router", "round_robin", "--disk-size", "0",  "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object()["ttft_mean_seconds"].get<double>();
  };
  EXPECT_GT(ttft_s({"--link", "1KB"}), ttft_s({}));
}

// On one question each both are expected near their mean.
TEST_F(SimulateCommand, QualitiesAreKnownOrExpectedAsAServerDoes) {
  const auto profile = [](double agreement) {
    return fmt::format(R"({{"full_bytes": 100, "rows": [{{"method": "kivi2", "keep": 1, "bytes": 10, "questions": 1,)"
                       R"( "agreement": {}, "decode_seconds": 0}}]}})"
                       "\n",
                       agreement);
  };
  const auto made =
      file("slow.json", R"({"kv_bytes_per_token": 100, "prefill_s_per_token": 0.001, "prefill_s_per_pair": 0,
      "tiers": [{"name": "memory", "bytes": 1000000000, "latency_s": 0, "read_bytes_per_s": 1000000}]})");
  const auto quality = [&](const std::string& profiles, const std::string& qualities) {
    const Outcome outcome =
        run({"simulate", "tiers", "--trace", branches_, "--emulate", made, "--planner", "shale", "--alpha", "0.3",
             "--profiles", file("profiles.jsonl", profiles), "--qualities", qualities, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.objects().at(0)["quality"].get<double>();
  };
  EXPECT_EQ(quality(profile(0.5), "expected"), quality(profile(0.5), "known")) << "there is no other";
  EXPECT_NE(quality(profile(0.95) + profile(0.05), "expected"), quality(profile(0.95) + profile(0.05), "known"));
  EXPECT_THAT(run({"simulate", "tiers", "--trace", branches_, "--qualities", "expected"}).err, HasSubstr("--profiles"));
}

// Requests ask other questions than those that the profile was measured on.
TEST_F(SimulateCommand, WhatIsExpectedIsOfOtherQuestionsThanThoseAsked) {
  const auto made =
      file("slow.json", R"({"kv_bytes_per_token": 100, "prefill_s_per_token": 0.001, "prefill_s_per_pair": 0,
      "tiers": [{"name": "memory", "bytes": 1000000000, "latency_s": 0, "read_bytes_per_s": 1000000}]})");
  const auto quality = [&](const std::string& profiles, const std::string& qualities, const std::string& alpha) {
    const Outcome outcome =
        run({"simulate", "tiers", "--trace", branches_, "--emulate", made, "--planner", "shale", "--alpha", alpha,
             "--profiles", file("profiles.jsonl", profiles), "--qualities", qualities, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.objects().at(0)["quality"].get<double>();
  };
  const auto profile = [](const std::string& kind, double agreement, double held_out) {
    return fmt::format(R"({{"full_bytes": 100, "tokens": 1000, "kind": "{}", "rows": [{{"method": "kivi2", "keep": 1,)"
                       R"( "bytes": 10, "questions": 1, "agreement": {}, "held_out_agreement": [{}, 0],)"
                       R"( "decode_seconds": 0}}]}})"
                       "\n",
                       kind, agreement, held_out);
  };
  EXPECT_EQ(quality(profile("prose", 1, 0.2), "known", "1000"), 1) << "nothing lossy";
  EXPECT_LT(quality(profile("prose", 1, 0.2), "expected", "1000"), 0.9) << "what seemed to lose nothing";

  // Contexts of the same qualities say more of one another where they are of one kind.
  const auto by_alpha = [&](const std::string& other) {
    std::string profiles;
    for (int i = 0; i < 3; ++i) profiles += profile("prose", 1, 1) + profile(other, 0, 0);
    std::vector<double> qualities;
    for (const char* alpha : {"0.01", "0.03", "0.1", "0.3", "1"})
      qualities.push_back(quality(profiles, "expected", alpha));
    return qualities;
  };
  EXPECT_NE(by_alpha("records"), by_alpha("prose"));
}

TEST_F(SimulateCommand, WhatMovesCostAndHowLongBlocksAreChangesWhatIsKept) {
  const auto simulated = [&](const Words& command, const Words& more) {
    Words words = {"simulate"};
    words.insert(words.end(), command.begin(), command.end());
    words.insert(words.end(), {"--trace", branches_, "--json"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object();
  };
  for (const Words& command : {Words{"tiers", "--planner", "shale", "--memory-size", "1GB"},
                               Words{"fleet", "--engines", "1", "--router", "events", "--memory-size", "1GB"}}) {
    EXPECT_NE(simulated(command, {"--move-cost", "0"})["tiers"], simulated(command, {})["tiers"]) << command[0];
    EXPECT_EQ(simulated(command, {"--move-cost", "1"})["tiers"], simulated(command, {})["tiers"]) << command[0];
  }
  const Words hybrid = {"--policy", "hybrid", "--blocks", "10"};
  const auto by_depth = simulated(hybrid, {"--hybrid-length", "depth"})["blocks_reused"];
  EXPECT_NE(simulated(hybrid, {"--hybrid-length", "1"})["blocks_reused"], by_depth);
  EXPECT_EQ(simulated(hybrid, {})["blocks_reused"], by_depth);
}

TEST_F(SimulateCommand, HardwareThatIsNoneIsRefusedByName) {
  const auto refused = [&](const std::string& text) {
    const Outcome outcome = run({"simulate", "tiers", "--trace", branches_, "--emulate", file("bad.json", text)});
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.err, HasSubstr("bad.json: "));
    return outcome.err;
  };
  const auto with_tiers = [&](const std::string& tiers) {
    return refused(R"({"kv_bytes_per_token": 1, "prefill_s_per_token": 1, "prefill_s_per_pair": 0, "tiers": )" + tiers +
                   "}");
  };
  EXPECT_THAT(refused("[1"), HasSubstr("hardware must be a JSON object"));
  EXPECT_THAT(refused("{}"), HasSubstr("kv_bytes_per_token must be a number above 0"));
  EXPECT_THAT(refused(R"({"kv_bytes_per_token": 1e19})"), HasSubstr("at most 1e+18"));
  EXPECT_THAT(refused(R"({"flops": 1})"), HasSubstr("'flops' is unknown: there are kv_bytes_per_token"));
  EXPECT_THAT(with_tiers("[]"), HasSubstr("tiers must be a list"));
  EXPECT_THAT(with_tiers("[7]"), HasSubstr("a tier must be an object with a name"));
  EXPECT_THAT(with_tiers(R"([{"name": "memory", "bytes": 0, "latency_s": 0, "read_bytes_per_s": 1}])"),
              HasSubstr("bytes must be a number above 0"));
  const std::string tier = R"({"name": "memory", "latency_s": 0, "read_bytes_per_s": 1})";
  EXPECT_THAT(with_tiers("[" + tier + ", " + tier + "]"), HasSubstr("two tiers are called 'memory'"));
  EXPECT_THAT(run({"simulate", "tiers", "--trace", branches_, "--emulate", "none such"}).err,
              HasSubstr("'none such' is not hardware to emulate: there are h100-nvme, laptop, or give a file"));
}

TEST_F(SimulateCommand, FleetsRefusePricesThatAreNone) {
  const auto refused = [&](const std::string& text, const Words& more = {}) {
    Words words = {"simulate", "fleet", "--trace", branches_, "--prices", file("prices.json", text)};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_NE(outcome.status, 0);
    return outcome.err;
  };
  EXPECT_THAT(refused("[]"), HasSubstr("prices must be a JSON object"));
  EXPECT_THAT(refused(R"({"gpu_hour": 1})"),
              HasSubstr("'gpu_hour' is no price: there are engine_hour, memory_gb_hour"));
  EXPECT_THAT(refused(R"({"engine_hour": -1})"), HasSubstr("engine_hour must be a number of at least 0"));
  EXPECT_THAT(refused("{}", {"--planner", "fixed:int8"}), HasSubstr("a fleet's contexts are exact"));
  EXPECT_THAT(refused("{}", {"--engines", "300"}), HasSubstr("300"));
}

TEST_F(SimulateCommand, WhatOnlySimulateReadsIsRefusedByTheCommandsBelowIt) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"tiers", "--trace", branches_, "--html", "x.html"}, "--html"},
      {{"tiers", "--csv", "--trace", branches_}, "--csv"},
      {{"fleet", "--trace", branches_, "--seed", "7"}, "--seed"},
      {{"--policy", "lru", "tiers", "--trace", branches_}, "--policy"},
      {{"reproduce", "--blocks", "1000"}, "--blocks"},
  };
  for (const auto& [more, option] : cases) {
    Words words = {"simulate"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr(option + ": it was given to `shale simulate`"));
  }
  const auto config = file("config.toml", "[simulate]\nseed = 7\npolicy = \"lru\"\n");
  EXPECT_EQ(run({"simulate", "tiers", "--trace", branches_, "--config", config}).status, 0) << "it runs, too, at times";
}

}  // namespace
}  // namespace shale::testing
