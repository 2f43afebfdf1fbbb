// `shale trace`: traces looked at, and made.
#include <gmock/gmock.h>

#include "cli/shale_program.h"
#include "support/test_data.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class TraceCommands : public ShaleProgram {
 protected:
  static std::string sample(const char* name) { return test_data() / "traces" / name; }
};

TEST_F(TraceCommands, InfoTellsWhatATraceIsLike) {
  const Outcome outcome = run({"trace", "info", sample("mooncake.jsonl"), "--json", "--window", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto info = outcome.object();
  EXPECT_EQ(info["trace"], "mooncake.jsonl");
  EXPECT_EQ(info["format"], "mooncake");
  EXPECT_EQ(info["block_tokens"], 512);
  EXPECT_EQ(info["requests"], 4);
  EXPECT_EQ(info["blocks"], 10);
  EXPECT_EQ(info["unique_blocks"], 6);
  EXPECT_EQ(info["reused_blocks"], 4);
  EXPECT_EQ(info["reusing_requests"], 2);
  EXPECT_DOUBLE_EQ(info["hit_ratio_unbounded"], 0.4);
  EXPECT_DOUBLE_EQ(info["duration_seconds"], 2.75);
  EXPECT_EQ(info["prompt_tokens"]["max"], 1500);
  ASSERT_EQ(info["windows"].size(), 3u);
  EXPECT_EQ(info["windows"][2]["new_blocks"], 2);
  EXPECT_EQ(info["reuse_distance"]["histogram"].size(), 2u);

  const Outcome text = run({"trace", "info", sample("mooncake.jsonl"), sample("azure.csv")});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* expected : {"mooncake.jsonl (mooncake, 512 tokens a block)", "azure.csv (azure", "40.00 % of blocks",
                               "working set", "4 in 2.75 s"}) {
    EXPECT_THAT(text.out, HasSubstr(expected));
  }
}

TEST_F(TraceCommands, OptionsOfReadingArePassedOn) {
  const auto info = [&](Words words) {
    words.insert(words.begin(), {"trace", "info", "--json"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object();
  };
  EXPECT_EQ(info({sample("sessions.jsonl")})["unique_blocks"], 20);
  EXPECT_EQ(info({sample("sessions.jsonl"), "--share-prefixes", "all"})["unique_blocks"], 20 - 3 - 1);
  EXPECT_DOUBLE_EQ(info({sample("sessions.jsonl")})["duration_seconds"], 9);
  EXPECT_GT(info({sample("sessions.jsonl"), "--session-rate", "0.001"})["duration_seconds"], 9);
  EXPECT_DOUBLE_EQ(info({sample("mooncake.jsonl"), "--timestamps", "s"})["duration_seconds"], 2750);
  EXPECT_EQ(info({sample("tokens.jsonl"), "--block-tokens", "2"})["block_tokens"], 2);
  const auto back = file("back.trace", "shale-trace 1 16\n5 16 0 1\n3 16 0 2\n");
  EXPECT_DOUBLE_EQ(info({back, "--sort"})["duration_seconds"], 2);
}

TEST_F(TraceCommands, WhatIsWrongIsSaidWithItsPlace) {
  const auto bad = file("bad.trace", "shale-trace 1 16\n0 16 0 1\n0 16 0 x\n");
  const Outcome outcome = run({"trace", "info", bad});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bad.trace:3:8: a block's number is expected"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(run({"trace", "info", "/nowhere/trace"}).status, 1);
  EXPECT_THAT(run({"trace", "info", sample("text.jsonl")}).err, HasSubstr("name one"));
  EXPECT_THAT(run({"trace", "make", "questions", sample("questions.jsonl"), "--out", "-"}).err, HasSubstr("name one"));
  EXPECT_THAT(run({"trace", "make", "chats", "--out", "-", "--json"}).err, HasSubstr("--out"));
  EXPECT_THAT(run({"trace", "make", "documents", "--documents", "0", "--out", "-"}).err, HasSubstr("documents"));
}

TEST_F(TraceCommands, WhatIsMadeIsReadBack) {
  const auto made = home_.path() / "made.trace.gz";
  const Outcome outcome = run({"trace", "make", "chats", "--requests", "300", "--rate", "5", "--arrivals", "bursty",
                               "--block-tokens", "32", "--out", made, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.object()["requests"], 300);
  const auto info = run({"trace", "info", made, "--json"}).object();
  EXPECT_EQ(info["requests"], 300);
  EXPECT_EQ(info["block_tokens"], 32);
  EXPECT_EQ(info["blocks"].get<int>() + info["output_blocks"].get<int>(), outcome.object()["blocks"]);
  EXPECT_GT(info["hit_ratio_unbounded"], 0.3);

  // Through a pipe, in either form, the same.
  const Words words = {"trace", "make", "documents", "--requests", "50", "--out", "-"};
  Words jsonl = words;
  jsonl.insert(jsonl.end(), {"--form", "jsonl"});
  const auto plain_info = run({"trace", "info", "-", "--json"}, run(words).out).object();
  const auto jsonl_info = run({"trace", "info", "-", "--json"}, run(jsonl).out).object();
  EXPECT_EQ(plain_info["format"], "plain");
  EXPECT_EQ(jsonl_info["format"], "mooncake");
  EXPECT_EQ(plain_info["requests"], 50);
  EXPECT_EQ(plain_info["reuse_distance"], jsonl_info["reuse_distance"]);
  EXPECT_EQ(plain_info["unique_blocks"], jsonl_info["unique_blocks"]);
}

class TraceTokens : public TinyProgram {};

TEST_F(TraceTokens, AModelsTokenizerCutsText) {
  const std::string model = environment_["SHALE_MODEL"];
  const auto text = (test_data() / "traces/text.jsonl").string();
  const Outcome info = run({"trace", "info", text, "--model", model, "--block-tokens", "4", "--json"});
  ASSERT_EQ(info.status, 0) << info.err;
  EXPECT_EQ(info.object()["input_tokens"], 10 + 20) << "a token a letter";
  EXPECT_EQ(info.object()["reused_blocks"], 2) << "those of prompts count, not the answer's";

  const auto documents = (test_data() / "traces/questions.jsonl").string();
  const auto made = home_.path() / "questions.jsonl";
  const Outcome outcome = run({"trace", "make", "questions", documents, "--model", model, "--block-tokens", "8",
                               "--batch", "2", "--form", "jsonl", "--out", made, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.object()["requests"], 3);
  EXPECT_EQ(run({"trace", "info", made, "--json"}).object()["input_tokens"], (25 + 6) + (25 + 7) + (49 + 8));
}

}  // namespace
}  // namespace shale::testing
