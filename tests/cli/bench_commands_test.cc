// Benchmarks run tiny, so that they never rot; their results mean nothing here.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

class BenchCommandsTest : public TinyProgram {
 protected:
  // docs/reference/json.md names every field of these objects, in back-quotes, in the benchmark's item: where that
  // tells objects apart by `test`, in their part of it or in what each has.
  static void expect_documented(const std::string& benchmark, const std::vector<nlohmann::json>& objects) {
    const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
    const std::string page = read(root / "docs/reference/json.md");
    const std::size_t begin = page.find("\n- `" + benchmark + "`:", page.find("\n## `bench`\n"));
    ASSERT_NE(begin, page.npos) << benchmark;
    std::string item = page.substr(begin, page.find("\n- ", begin + 1) - begin);
    for (std::size_t line; (line = item.find("\n  ")) != item.npos;) item.replace(line, 3, " ");
    ASSERT_FALSE(objects.empty());
    for (const auto& object : objects) {
      const std::size_t own = item.find("`test` `" + object.at("test").get<std::string>() + "`");
      const std::size_t of_each = item.find(" each with ");
      std::string part = own == item.npos ? item : item.substr(own, item.find("`test` `", own + 1) - own);
      if (of_each != item.npos) part += item.substr(of_each);
      for (const auto& [field, value] : object.items()) {
        if (field == "test" || field == "machine") continue;  // of every benchmark
        EXPECT_THAT(part, ::testing::HasSubstr("`" + field + "`")) << benchmark;
      }
    }
  }
};

TEST_F(BenchCommandsTest, EngineMeasuresEveryKind) {
  const Outcome outcome = run({"bench", "engine", "--tiny", "--rounds", "1", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> tests;
  for (const auto& row : outcome.objects()) {
    tests.push_back(row["test"]);
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_TRUE(row["ratio"].is_null());
    EXPECT_GT(row["machine"]["read_bytes_per_second"], 0);
  }
  EXPECT_EQ(tests, (std::vector<std::string>{"prefill", "decode", "exact", "batch"}));
}

TEST_F(BenchCommandsTest, ExactAnswersAreTheSameHoweverTheyComeAbout) {
  environment_.erase("SHALE_WEIGHTS");  // the fastest, which may be others for one token than for many
  environment_.erase("SHALE_THREADS");
  std::string lines;
  for (const char* text : {"shale", "slate", "marl"}) {
    std::string context;
    for (int i = 0; i < 12; ++i) context += std::string("A layer of ") + text + ". ";
    lines += nlohmann::json{{"id", text}, {"context", context}, {"questions", nlohmann::json::array({"What is it?"})}}
                 .dump() +
             "\n";
  }
  const Outcome outcome =
      run({"bench", "exact", "--contexts", file("contexts.jsonl", lines), "--beside", "3", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  std::map<std::string, int> cached;
  for (const auto& row : outcome.objects()) {
    const bool other_weights = row["way"] == "thread" && row["answers"] == 0;  // were faster on one thread
    const int answers = row["way"] == "stored" ? 9 : row["way"] == "turn" ? 6 : 3;
    EXPECT_TRUE(row["answers"] == answers || other_weights) << row;
    EXPECT_EQ(row["different"], 0) << row["way"];
    cached[row["way"]] = row["cached_tokens"];
  }
  EXPECT_EQ(cached.size(), 9u);
  EXPECT_GT(cached["pool"], cached["memory"]);
  EXPECT_GT(cached["memory"], 0);
  EXPECT_EQ(cached["disk"], cached["memory"]);
  EXPECT_EQ(cached["remote"], cached["memory"]);
  EXPECT_EQ(cached["cut"], 0);
}

TEST_F(BenchCommandsTest, EngineComparesInt8PagesWithHalves) {
  const Outcome outcome = run({"bench", "engine", "--tiny", "--kv-cache-dtype", "int8", "--tests", "decode", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto row = outcome.object();
  EXPECT_EQ(row["kv_cache_dtype"], "int8");
  EXPECT_DOUBLE_EQ(row["ratio_to_fp16"].get<double>(),
                   row["tokens_per_second"].get<double>() / row["fp16_tokens_per_second"].get<double>());
}

TEST_F(BenchCommandsTest, ScoringMeasuresWhatIsWatchedAndEveryScorer) {
  const Outcome outcome = run({"bench", "scoring", "--tiny", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> observed, scorers;
  for (const auto& row : outcome.objects()) {
    (row["test"] == "observe" ? observed : scorers).push_back(row[row["test"] == "observe" ? "observed" : "scorer"]);
    EXPECT_GT(row["prefill_seconds"], 0);
    EXPECT_GT(row["attention_seconds"], 0);
  }
  EXPECT_THAT(observed, ::testing::ElementsAre("last 64 queries", "last 400 queries", "attention sums", "query moments",
                                               "repetition"));
  EXPECT_THAT(scorers, ::testing::IsSupersetOf({"h2o", "kvzip", "snapkv", "random"}));
  expect_documented("scoring", outcome.objects());
}

// Layers with a sliding window are never ranked: what scoring them took nobody pays.
TEST_F(BenchCommandsTest, ScoringScoresTheLayersThatAreRanked) {
  const auto model = home_.path() / "gemma.gguf";
  write_tiny_model({.architecture = "gemma3", .layers = 4, .vocabulary = kByteVocabulary}, model,
                   [](gguf_context* metadata) { set_byte_vocabulary(metadata); });
  const Outcome outcome = run({"bench", "scoring", "--tiny", "--model", model, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const auto& row : outcome.objects()) EXPECT_EQ(row["layers"], 2) << row;
}

TEST_F(BenchCommandsTest, TiersMovesBytesAndFirstTokens) {
  const Outcome outcome = run({"bench", "tiers", "--tiny", "--folder", home_.path(), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> sources;
  for (const auto& row : outcome.objects()) {
    if (row["test"] == "first_token") sources.push_back(row["from"]);
    if (row["test"] == "io") {
      EXPECT_GT(row["bytes_per_second"], 0);
    }
  }
  EXPECT_EQ(sources, (std::vector<std::string>{"computed", "pool", "memory", "disk"}));
}

TEST_F(BenchCommandsTest, StoreSavesLoadsAndOpens) {
  const Outcome outcome = run({"bench", "store", "--tiny", "--threads", "2", "--folder", home_.path(), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> io;
  for (const auto& row : outcome.objects()) {
    if (row["test"] == "index") {
      EXPECT_EQ(row["chunks"], 1024);
      EXPECT_EQ(row["chunks_after_kill"], 1024);
      EXPECT_GT(row["index_bytes_per_chunk"], 0);
    } else {
      EXPECT_GT(row["bytes_per_second"], 0);
      io.push_back(fmt::format("{} {} {}", row["tier"].get<std::string>(), row["operation"].get<std::string>(),
                               row["method"].get<std::string>()));
    }
  }
  EXPECT_EQ(io.size(), 12u) << "two tiers, three methods, two operations";
  EXPECT_THAT(io, ::testing::IsSupersetOf({"memory save full", "memory load kivi4", "disk load int8"}));
}

TEST_F(BenchCommandsTest, PlannerComparesPlanners) {
  const Outcome outcome = run({"bench", "planner", "--tiny", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::size_t at_once = 0, changes = 0;
  for (const auto& row : outcome.objects()) {
    if (row["test"] == "planner") {
      ++at_once;
      EXPECT_LE(row["utility"].get<double>(), row["bound"].get<double>() + 1e-6);
    } else {
      ++changes;
      EXPECT_GT(row["count"], 0);
      EXPECT_GT(row["mean_seconds"], 0);
      EXPECT_GT(row["p99_seconds"], 0);
    }
  }
  EXPECT_GE(at_once, 5u);
  expect_documented("planner", outcome.objects());
  EXPECT_GE(changes, 1u);
}

TEST_F(BenchCommandsTest, HazardStaysBelowTheOptimumInEveryVariant) {
  const Outcome outcome = run({"bench", "hazard", "--tiny", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::map<std::uint64_t, double> optimum;
  for (const auto& row : outcome.objects()) {
    if (row["variant"] == "optimum") optimum[row["blocks"]] = row["hit_ratio"];
  }
  EXPECT_EQ(optimum.size(), 2u);
  expect_documented("hazard", outcome.objects());
  for (const auto& row : outcome.objects()) {
    EXPECT_LE(row["lowest"], row["hit_ratio"]);
    EXPECT_LE(row["hit_ratio"], row["highest"]);
    EXPECT_LE(row["highest"], optimum[row["blocks"]]) << row;
  }
}

TEST_F(BenchCommandsTest, SimulateMeasuresEveryPolicy) {
  const Outcome outcome = run({"bench", "simulate", "--tiny", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::map<std::string, int> tests;
  for (const auto& row : outcome.objects()) {
    ++tests[row["test"]];
    EXPECT_GT(row["seconds"], 0);
    if (row["test"] == "peer" && !row["peer_misses"].is_null()) {
      EXPECT_EQ(row["misses"], row["peer_misses"]);
    }
  }
  EXPECT_GE(tests["speed"], 3 * 14);  // two sizes and a longer trace, for each policy
  EXPECT_EQ(tests["sweep"], 1);
  expect_documented("simulate", outcome.objects());
  EXPECT_EQ(tests["peer"], 3);
}

TEST_F(BenchCommandsTest, PagingComparesBudgetsWithTheFullCache) {
  const std::string figure = home_.path() / "pages.svg";
  const Outcome outcome =
      run({"bench", "paging", "--methods", "paged_eviction,adakv:snapkv", "--budgets", "32,48", "--sequences", "1,3",
           "--prompt-tokens", "64", "--output-tokens", "24", "--figure", figure, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = outcome.objects();
  ASSERT_EQ(rows.size(), 2u * (1 + 4));
  for (const auto& row : rows) {
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_GE(row["itl_p99_seconds"], row["itl_p50_seconds"]);
    EXPECT_LE(row["pages_peak"], row["pages_total"]);
    EXPECT_EQ(row["pages_end"], 0);
    EXPECT_EQ(row["method"] == "full", row["budget"].is_null());
    if (row["method"] == "full") {
      EXPECT_EQ(row["ratio_to_full"], 1);
    }
  }
  EXPECT_TRUE(std::filesystem::exists(figure));
  EXPECT_EQ(run({"bench", "paging", "--methods", "kvzip", "--sequences", "1", "--prompt-tokens", "64"}).status, 2);
}

// The full cache holds as much with a prefix cache as without one, and so does a budget.
TEST_F(BenchCommandsTest, PagingTellsWhatRequestsHoldBesideThePrefixCache) {
  std::map<std::string, std::vector<std::uint64_t>> peaks;
  for (const char* prefix_cache : {"off", "on"}) {
    const Outcome outcome = run({"bench", "paging", "--prefix-cache", prefix_cache, "--methods", "knorm", "--budgets",
                                 "32", "--sequences", "1", "--prompt-tokens", "200", "--output-tokens", "100",
                                 "--intervals", "16", "--pool-share", "2", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    for (const auto& row : outcome.objects()) {
      EXPECT_EQ(row["prefix_cache"], std::string_view(prefix_cache) == "on");
      EXPECT_EQ(row["pages_end"], 0);
      peaks[row["method"]].push_back(row["pages_peak"]);
    }
  }
  for (const auto& [method, pages] : peaks) EXPECT_EQ(pages[0], pages[1]) << method;
}

TEST_F(BenchCommandsTest, PagingLetsALongPromptJoin) {
  const Outcome outcome =
      run({"bench", "paging", "--join", "200", "--sequences", "2", "--prompt-tokens", "16", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_EQ(outcome.objects().size(), 1u);
  EXPECT_GT(outcome.objects()[0]["ratio_p99"], 0);
}

TEST_F(BenchCommandsTest, PagingJoinsByItsOwnOptionsAlone) {
  const auto join = [&](Words more) {
    Words words = {"bench", "paging", "--join", "200", "--sequences", "2", "--prompt-tokens", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome whole = join({"--chunk-slowdown", "0", "--json"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.object()["chunk_slowdown"], 0);
  EXPECT_EQ(whole.object()["joined_steps"], 1) << "a prompt of one chunk";
  EXPECT_EQ(join({"--json"}).object()["chunk_slowdown"], 1.7);
  for (const char* option : {"--methods", "--budgets", "--intervals", "--output-tokens", "--pool-share"}) {
    const Outcome refused = join({option, "1"});
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_THAT(refused.err, ::testing::HasSubstr(option));
  }
}

TEST_F(BenchCommandsTest, PagingQualityMeasuresEveryBudget) {
  const std::string contexts = home_.path() / "contexts.jsonl";
  std::ofstream(contexts) << R"({"id":"a","dataset":"own","context":"One sentence says little. Another says less.",)"
                          << R"("questions":["What?","Why?"],"answers":[["little"],["length"]]})" << "\n";
  const Outcome outcome = run({"bench", "paging-quality", "--contexts", contexts, "--compare", "paged_eviction,random",
                               "--budgets", "16,32", "--answer-tokens", "6", "--questions-max", "2", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.objects().size(), 2u * 4);
  for (const auto& row : outcome.objects()) EXPECT_LE(row["agreement"], 1);
  EXPECT_EQ(run({"bench", "paging-quality"}).status, 2);
}

TEST_F(BenchCommandsTest, KernelsReportShares) {
  const Outcome outcome = run({"bench", "kernels", "--tiny", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_documented("kernels", outcome.objects());
  for (const auto& row : outcome.objects()) EXPECT_GT(row["share_of_read_bandwidth"], 0);
}

}  // namespace
}  // namespace shale::testing
