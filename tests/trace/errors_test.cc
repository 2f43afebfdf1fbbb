// What is wrong with a file is said with its place and what to do; nothing is skipped.
#include <gmock/gmock.h>

#include "trace/trace_files.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TraceErrorTest : public TraceFiles {
 protected:
  struct Case {
    std::string text, error;
  };
  void expect(const std::vector<Case>& cases, const TraceOptions& options = {}) {
    for (const Case& c : cases) EXPECT_THAT(error_of(c.text, options), StartsWith(c.error)) << c.text;
  }
};

TEST_F(TraceErrorTest, HashIds) {
  const std::string good = R"({"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]})"
                           "\n";
  expect({
      {good + R"({"timestamp": 0, "input_length": 600, "hash_ids": [1, 2.5]})", "2:55: a block's id is expected"},
      {good + R"({"timestamp": 0, "input_length": 600, "hash_ids": [1, null]})", "2:55: a block's id"},
      {good + R"({"timestamp": 0, "input_length": 600, "hash_ids": 7})", "2:51: an array, […], is expected"},
      {good + R"({"timestamp": 0, "input_length": -600, "hash_ids": [1, 2]})",
       "2:34: a whole number from 0 to 4294967295"},
      {good + R"({"timestamp": 0, "input_length": 4294967296, "hash_ids": []})", "2:34: a whole number"},
      {good + R"({"timestamp": "0", "input_length": 600, "hash_ids": [1, 2]})", "2:15: a number is expected"},
      {good + R"({"timestamp": 1e999, "input_length": 600, "hash_ids": [1, 2]})", "2:15: a number is expected"},
      {good + R"({"input_length": 600, "hash_ids": [1, 2]})", "2:1: \"timestamp\" is missing"},
      {good + R"({"timestamp": 0, "hash_ids": [1, 2]})", "2:1: \"input_length\" is missing"},
      {good + R"({"timestamp": 0, "input_length": 600})", "2:1: \"hash_ids\" is missing"},
      {good + R"({"timestamp": 0, "timestamp": 0, "input_length": 600, "hash_ids": [1, 2]})",
       "2:31: \"timestamp\" is here twice"},
      {good + R"({"timestamp": 0, "input_length": 600, "hash_ids": [1, 2, 3]})",
       "2:51: 3 blocks for 600 tokens, where 2 of 512 tokens are expected"},
      {good + R"({"timestamp": 0, "input_length": 600, "block_size": 16, "hash_ids": [1, 2]})",
       "2:53: blocks of 16 tokens among blocks of 512"},
      {good +
           R"({"timestamp": 0, "input_length": 600, "output_length": 600, "hash_ids": [1, 2], "output_hash_ids": [3]})",
       "2:73: the prompt's last block is not full"},
      {good + R"({"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1], "output_hash_ids": [3]})",
       "2:95: 1 blocks of answer, but 609 tokens fill only 0"},
      {good + R"({"timestamp": 0, "input_length": 600, "unnamed_length": 601, "hash_ids": []})",
       "2:57: 601 tokens in no block, of 600 in all"},
      {good + R"({"timestamp": 0, "input_length": 600, "unnamed_length": 60, "hash_ids": [1, 2]})",
       "2:57: tokens in no block follow full blocks: 540 tokens are no 2 of 512"},
      {good + R"({"timestamp": 0, "input_length": 600, "output_length": 600, "unnamed_length": 88, "hash_ids": [1], )" +
           R"("output_hash_ids": [3]})",
       "2:79: the answer's blocks cannot follow tokens that are in none"},
      {good + "\n" + R"({"timestamp": -1, "input_length": 600, "hash_ids": [1, 2]})",
       "3:15: the request comes 0.001 s"},
      {good + R"({"timestamp": 1.7e308, "input_length": 600, "hash_ids": [1, 2]})",
       "2:15: the time is more than 1e+18 seconds from zero"},
      {R"({"timestamp": 0, "input_length": 1000000000, "hash_ids": [1, 2]})", "1:58: 2 blocks do not tell the size"},
  });
}

TEST_F(TraceErrorTest, WhatIsNoJson) {
  const std::string good = R"({"timestamp": 0, "input_length": 6, "hash_ids": [1]})"
                           "\n";
  expect({
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1])",
       "2:52: the line does not end where its object does"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1]} x)", "2:55: the line does not end where"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1]}{})", "2:53: nothing may follow the object"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1 2]})", "2:52: this is not JSON"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1,]})", "2:52: a block's id is expected"},
      {good + R"({"timestamp": 0 "input_length": 6, "hash_ids": [1]})", "2:17: this is not JSON"},
      {good + R"({"timestamp": 0, "input_length: 6})", "2:35: the line ends within a string"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1], "x": tru})", "2:59: this is not JSON"},
      {good + R"({"timestamp": 0, "input_length": 6, "hash_ids": [1], "x": {"y": [1, nil]}})",
       "2:69: this is not JSON"},
      {good + "{\"timestamp\": 0, \"x\\\\\": \"a\tb\"}", "2:27: a control character stands unescaped"},
      {good + R"([1, 2])", "2:1: a JSON object, {…}, is expected"},
      {good + "{\"timestamp\": 0, \"x\": \"\xff\"}", "2:24: this is not UTF-8"},
      {good + "{\"x\": " + std::string(100, '[') + std::string(100, ']') + "}",
       "2:72: more than 64 objects and arrays"},
      {"{\"x\": 1}", "1:1: no trace is known by these fields"},
      {R"({"context": "c", "questions": []})", "1:1: these are documents"},
  });
}

TEST_F(TraceErrorTest, Sessions) {
  const auto line = [](const std::string& requests) {
    return "{\"block_size\": 10, \"requests\": [" + requests + "]}";
  };
  expect({
      {R"({"requests": [{"t": 0, "in": 10, "out": 1, "keep": 0, "new": [[1, 1]]}]})", "1:1: \"block_size\" is missing"},
      {R"({"block_size": 0, "requests": []})", "1:16: a block has a token at least"},
      {R"({"block_size": 8, "hash_id_scope": "global", "requests": []})", "1:36: ids of scope \"global\""},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 1, "new": []})"),
       "1:70: 1 blocks are kept of the request before, which has 0"},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 0, "new": [[1]]})"), "1:81: a run of ids is two numbers"},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 0, "new": [[1, 2, 3]]})"), "1:81: a run of ids is two numbers"},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 0, "new": [[1, 99999999999]]})"),
       "1:80: the request has more than"},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 0, "new": [[1, 5]]})"),
       "1:48: 5 blocks for 10 tokens, where 1 of 10"},
      {line(R"({"in": 10, "out": 1, "keep": 0, "new": [[1, 1]]})"), "1:33: \"t\" is missing"},
      {line(R"({"t": 0, "in": 10, "out": 1, "keep": 0})"), "1:33: \"new\" is missing"},
      {line(R"({"t": 1, "in": 0, "out": 1, "keep": 0, "new": []}, {"t": 0, "in": 0, "out": 1, "keep": 0, "new": []})"),
       "1:90: the request comes 1 s before the one before it"},
  });
  std::string nested = R"({"t": 0, "requests": []})";
  for (int i = 0; i < 20; ++i) nested = R"({"t": 0, "requests": [)" + nested + "]}";
  EXPECT_THAT(error_of(line(nested)), HasSubstr("more than 8 subagents within each other"));
}

TEST_F(TraceErrorTest, Azure) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  expect({
      {"TIMESTAMP,Tokens\n", "1:1: the columns \"TIMESTAMP,ContextTokens,GeneratedTokens\" are expected"},
      {header + "2023-11-16 18:17:03.97,4808\n", "2:28: a comma is expected"},
      {header + "2023-11-16 18:17:03.97,4808,x\n", "2:29: the number of answer tokens is expected"},
      {header + "2023-11-16 18:17:03.97,4808,1,2\n", "2:30: a row has three columns"},
      {header + "2023-13-16 18:17:03.97,4808,1\n", "2:6: a month is expected, a whole number from 1 to 12"},
      {header + "2023-02-29 18:17:03.97,4808,1\n", "2:1: there is no such date"},
      {header + "2023-02-28T18:17:03.97,4808,1\n", "2:11: a blank between date and time is expected"},
      {header + "2023-02-28 18:17:03.97,-4808,1\n", "2:24: the number of prompt tokens is expected"},
  });
}

TEST_F(TraceErrorTest, Plain) {
  const std::string header = "shale-trace 1 16\n";
  expect({
      {"shale-trace 2 16\n", "1:13: version 1"},
      {"shale-trace 1 0\n", "1:15: the tokens of a block is expected, a whole number from 1 to"},
      {"shale-trace 1 16 x\n", "1:18: nothing may follow"},
      {header + "0 16\n", "2:5: the number of answer tokens is expected"},
      {header + "-1 16 0 1\n", "2:1: the arrival in seconds is expected, a number of at least 0"},
      {header + "inf 16 0 1\n", "2:1: the arrival in seconds"},
      {header + "0 16 0 x\n", "2:8: a block's number is expected"},
      {header + "0 16 0 1,2\n", "2:9: a blank is expected"},
      {header + "0 32 0 2-1\n", "2:10: the run's last block is expected, a whole number from 2"},
      {header + "0 32 0 0-18446744073709551615\n", "2:8: the request has more than"},
      {header + "0 32 0 1\n", "2:7: 1 blocks for 32 tokens, where 2 of 16 tokens are expected"},
      {header + "0 33 32 0-2 | 7\n", "2:13: the prompt's last block is not full"},
      {header + "0 33 2 0-1 | 7\n", "2:12: 1 blocks of answer, but 35 tokens fill only 0"},
      {header + "0 16 32 0 | 7 | 8\n", "2:15: a block's number is expected"},
  });
}

TEST_F(TraceErrorTest, FilesThatAreNoTraces) {
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of(" \n\n"), HasSubstr("is empty"));
  for (const char* none : {"shale-trace 1 16\n# but a comment\n", "{\"block_size\": 10, \"requests\": []}\n",
                           "TIMESTAMP,ContextTokens,GeneratedTokens\n"}) {
    EXPECT_THAT(error_of(none), HasSubstr("holds no request"));
  }
  EXPECT_THAT(error_of("PK\x03\x04"), StartsWith("1:1: this begins like no trace"));
  EXPECT_EQ(load_trace(folder_.path() / "absent").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(load_trace(folder_.path()).error().message, HasSubstr("is a folder"));
}

TEST_F(TraceErrorTest, DamagedGzip) {
  std::string text = "shale-trace 1 16\n";
  for (int i = 0; i < 20'000; ++i) text += fmt::format("{} 32 7 {} {}\n", i, (i * 2654435761u) % 9973, i % 13);
  const auto path = gzip(text);
  ASSERT_EQ(requests_of(path).size(), 20'000u);
  std::ifstream stream(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(stream), {});
  const auto error = [&](const std::string& damaged) { return load_trace(file(damaged, "bad.gz")).error().message; };
  EXPECT_THAT(error(bytes.substr(0, bytes.size() / 2)), HasSubstr("ends too early"));
  bytes[bytes.size() - 6] ^= 0x55;  // of the checksum; damage before it may be found as a line that does not parse
  EXPECT_THAT(error(bytes), HasSubstr("(incorrect data check)"));
}

TEST_F(TraceErrorTest, LimitsAreKept) {
  TraceOptions options;
  options.limits.line_bytes_max = 100;
  EXPECT_THAT(error_of("shale-trace 1 16\n# " + std::string(200, 'x') + "\n", options),
              StartsWith("2:1: the line is longer than 100 bytes"));
  EXPECT_EQ(trace_of("shale-trace 1 16\n0 16 0 1\n", options).requests.size(), 1u);

  options = {};
  options.limits.request_blocks_max = 3;
  EXPECT_THAT(error_of("shale-trace 1 16\n0 64 0 1-4\n", options),
              StartsWith("2:8: the request has more than 3 blocks"));
  EXPECT_THAT(error_of(R"({"timestamp": 0, "input_length": 2048, "hash_ids": [1, 2, 3, 4]})", options),
              StartsWith("1:62: the request has more than 3 blocks"));
  EXPECT_THAT(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-28 18:17:03,4000000000,1\n", options),
              StartsWith("2:21: the request has more than 3 blocks"));

  options = {};
  options.limits.blocks_max = 3;
  const auto trace = load_trace(file("shale-trace 1 16\n0 32 0 1-2\n0 32 0 1-2\n"), options);
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kFull);
  EXPECT_THAT(trace.error().message, HasSubstr("request 2 exceeds 3 blocks"));
}

TEST_F(TraceErrorTest, SessionsThatOverlapShareALimit) {
  const std::string session =
      R"({"block_size": 10, "requests": [{"t": 0, "in": 30, "out": 1, "keep": 0, "new": [[1, 3]]}]})"
      "\n";
  TraceOptions options;
  options.limits.open_blocks_max = 5;
  const auto together = load_trace(file(session + session), options);
  ASSERT_FALSE(together);
  EXPECT_EQ(together.error().code, ErrorCode::kFull);
  EXPECT_THAT(together.error().message, HasSubstr(":2: sessions that overlap have more than 5 blocks"));
  options.sessions.starts = SessionStarts::kPoisson;
  EXPECT_EQ(trace_of(session + session, options).requests.size(), 2u) << "one is at its end before the next starts";
}

TEST_F(TraceErrorTest, TheBlockSizeAskedForIsHeldTo) {
  TraceOptions options;
  options.block_tokens = 64;
  EXPECT_THAT(error_of("shale-trace 1 16\n0 16 0 1\n", options),
              StartsWith("1:15: the trace has blocks of 16 tokens, not 64"));
  EXPECT_THAT(error_of(R"({"timestamp": 0, "input_length": 600, "hash_ids": [1, 2]})", options),
              StartsWith("1:51: 2 blocks for 600 tokens, where 10 of 64"));
  EXPECT_THAT(error_of(R"({"block_size": 10, "requests": []})", options),
              HasSubstr("blocks of 10 tokens among blocks of 64"));
  options.block_tokens = 1u << 30;
  EXPECT_FALSE(open_trace(file("shale-trace 1 16\n0 16 0 1\n"), options));
}

}  // namespace
}  // namespace shale::testing
