// What each format's sample says, by its own rules.
#include <gmock/gmock.h>

#include "trace/trace_files.h"

namespace shale::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FormatTest : public TraceFiles {
 protected:
  static Trace sample(const char* name, const TraceOptions& options = {}) {
    auto trace = load_trace(test_data() / "traces" / name, options);
    EXPECT_TRUE(trace) << trace.error().message;
    return trace ? std::move(*trace) : Trace();
  }
  static std::string format_of(const std::filesystem::path& path, const TraceOptions& options = {}) {
    const auto reader = open_trace(path, options);
    return reader ? std::string((*reader)->format()) : reader.error().message;
  }
  static Result<std::vector<std::int32_t>> letters(std::string_view text) {
    return std::vector<std::int32_t>(text.begin(), text.end());
  }
};

TEST_F(FormatTest, IsToldByContentNotByName) {
  const std::vector<std::pair<const char*, const char*>> samples = {
      {"mooncake.jsonl", "mooncake"}, {"sessions.jsonl", "sessions"}, {"azure.csv", "azure"},
      {"tokens.jsonl", "tokens"},     {"text.jsonl", "text"},         {"plain.trace", "plain"}};
  for (const auto& [name, format] : samples) {
    std::ifstream stream(test_data() / "traces" / name, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    TraceOptions options;
    options.tokenize = letters;
    EXPECT_EQ(format_of(file(text, "some.csv"), options), format);
    EXPECT_EQ(format_of(gzip(text, "some.txt"), options), format);
    EXPECT_EQ(format_of(file("\xef\xbb\xbf\n \t\r\n" + text), options), format) << "blank lines before";
  }
}

TEST_F(FormatTest, Mooncake) {
  const Trace trace = sample("mooncake.jsonl");
  EXPECT_EQ(trace.name, "mooncake.jsonl");
  EXPECT_EQ(trace.block_tokens, 512u);
  ASSERT_EQ(trace.requests.size(), 4u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(0, 1));
  EXPECT_THAT(blocks_of(trace, 2), ElementsAre(0, 1, 3));
  EXPECT_THAT(blocks_of(trace, 3), ElementsAre(4, 5)) << "id 1 after another block is another block";
  EXPECT_THAT(trace.parents, ElementsAre(kNoBlock, 0, 1, 1, kNoBlock, 4));
  EXPECT_DOUBLE_EQ(trace.requests[2].arrival_s, 1.5);
  EXPECT_DOUBLE_EQ(trace.requests[3].arrival_s, 2.75);
  EXPECT_EQ(trace.requests[2].input_tokens, 1500u);
  EXPECT_EQ(trace.requests[2].output_tokens, 700u);
  EXPECT_TRUE(trace.last_is_partial(trace.requests[0]));
  EXPECT_FALSE(trace.last_is_partial(trace.requests[1]));
}

TEST_F(FormatTest, MooncakeOfAnotherBlockSizeIsRecognised) {
  const char* bailian =
      "{\"chat_id\": 159, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 52, \"output_length\": 132, "
      "\"type\": \"text\", \"turn\": 1, \"hash_ids\": [1089, 1090, 1091, 6326]}\n"
      "{\"chat_id\": 160, \"parent_chat_id\": 159, \"timestamp\": 62.364, \"input_length\": 40, \"output_length\": 1, "
      "\"type\": \"text\", \"turn\": 2, \"hash_ids\": [1089, 1090]}\n";
  const Trace trace = trace_of(bailian);
  EXPECT_EQ(trace.block_tokens, 16u);
  EXPECT_NEAR(trace.requests[1].arrival_s, 1.25, 1e-9) << "seconds, from the first request";
  EXPECT_EQ(trace.unique_blocks(), 4u);

  TraceOptions options;
  options.timestamps = TimestampUnit::kMilliseconds;
  EXPECT_NEAR(trace_of(bailian, options).requests[1].arrival_s, 0.00125, 1e-9);

  const std::string one = R"({"timestamp": 0, "input_length": 100, "hash_ids": [1])";
  EXPECT_EQ(trace_of(one + "}").block_tokens, 512u);
  EXPECT_EQ(trace_of(one + R"(, "block_size": 128})").block_tokens, 128u);
  options.block_tokens = 100;
  EXPECT_EQ(trace_of(one + "}", options).block_tokens, 100u);
}

TEST_F(FormatTest, TokensAtAPromptsEndMayBeInNoBlock) {
  const Trace trace = trace_of(
      "{\"timestamp\": 0, \"input_length\": 70, \"block_size\": 16, \"unnamed_length\": 38, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 0, \"input_length\": 5, \"unnamed_length\": 5, \"hash_ids\": []}\n");
  EXPECT_THAT(trace.blocks, ElementsAre(0, 1));
  EXPECT_EQ(trace.requests[0].input_tokens, 70u);
  EXPECT_FALSE(trace.last_is_partial(trace.requests[0]));
  EXPECT_EQ(trace.requests[1].input_tokens, 5u);
}

TEST_F(FormatTest, IdsAreNumbersOrStrings) {
  const Trace trace = trace_of(
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [-3, \"a9f0\"]}\n"
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [-3, \"a9f1\"]}\n"
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [18446744073709551615, \"a9f0\"]}\n");
  EXPECT_THAT(trace.blocks, ElementsAre(0, 1, 0, 2, 3, 4));
}

TEST_F(FormatTest, Sessions) {
  const Trace trace = sample("sessions.jsonl");
  EXPECT_EQ(trace.block_tokens, 10u);
  ASSERT_EQ(trace.requests.size(), 6u);
  const auto arrival = [&](std::size_t i) { return trace.requests[i].arrival_s; };
  // The sessions start together: a's first request, b's only one, then a's, with its subagent's among them.
  EXPECT_THAT(std::vector({arrival(0), arrival(1), arrival(2), arrival(3), arrival(4), arrival(5)}),
              ElementsAre(0, 0, 4, 5, 7, 9));
  // 55 + 30 tokens fill eight blocks: the answer's three stand at the start of what the next request adds.
  EXPECT_EQ(trace.requests[0].prompt_blocks, 5u);
  EXPECT_EQ(trace.requests[0].output_blocks, 3u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(8, 9, 10, 11)) << "ids of another session are others";
  EXPECT_THAT(blocks_of(trace, 2), ElementsAre(12, 13));
  EXPECT_EQ(trace.requests[2].output_blocks, 0u) << "25 tokens fill no third block";
  const Blocks third = blocks_of(trace, 3);
  EXPECT_THAT(Blocks(third.begin(), third.begin() + 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(trace.requests[3].output_blocks, 0u) << "the next request keeps less than the prompt: nothing is told";
  EXPECT_THAT(blocks_of(trace, 4).size(), 3u);
  const Blocks last = blocks_of(trace, 5);
  EXPECT_THAT(Blocks(last.begin(), last.begin() + 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(last.size(), 6u);
}

TEST_F(FormatTest, SessionsMayShareTheirPrefix) {
  TraceOptions options;
  const auto shared = [&](PrefixSharing sharing) {
    options.sessions.sharing = sharing;
    const Trace trace = sample("sessions.jsonl", options);
    const Blocks a = blocks_of(trace, 0), b = blocks_of(trace, 1), subagent = blocks_of(trace, 2);
    std::size_t same = 0, same_subagent = 0;
    while (same < b.size() && a[same] == b[same]) ++same;
    while (same_subagent < subagent.size() && a[same_subagent] == subagent[same_subagent]) ++same_subagent;
    return std::pair(same, same_subagent);
  };
  EXPECT_EQ(shared(PrefixSharing::kNone), std::pair(std::size_t{0}, std::size_t{0}));
  // Both have 20 tokens of tools, but 15 and 17 of system prompt; the subagent's tools have 10.
  EXPECT_EQ(shared(PrefixSharing::kSameSize), std::pair(std::size_t{2}, std::size_t{0}));
  EXPECT_EQ(shared(PrefixSharing::kAll), std::pair(std::size_t{3}, std::size_t{1}));
}

TEST_F(FormatTest, SessionsStartWhenAsked) {
  TraceOptions options;
  options.sessions = {.starts = SessionStarts::kPoisson, .sessions_per_s = 0.001, .seed = 5, .arrivals = {}};
  const Trace poisson = sample("sessions.jsonl", options);
  EXPECT_GT(poisson.requests.back().arrival_s, 9) << "b comes long after a";
  EXPECT_EQ(poisson.requests.back().input_tokens, 49u);
  EXPECT_EQ(sample("sessions.jsonl", options).requests.back().arrival_s, poisson.requests.back().arrival_s);
  options.sessions.seed = 6;
  EXPECT_NE(sample("sessions.jsonl", options).requests.back().arrival_s, poisson.requests.back().arrival_s);

  options.sessions.starts = SessionStarts::kArrivals;
  options.sessions.arrivals = test_data() / "traces/azure.csv";
  const Trace arranged = sample("sessions.jsonl", options);
  EXPECT_DOUBLE_EQ(arranged.requests[1].arrival_s, 1.75);
  EXPECT_EQ(arranged.requests[1].input_tokens, 49u);

  options.sessions.arrivals = file("shale-trace 1 512\n0 0 0\n");
  const auto too_few = load_trace(test_data() / "traces/sessions.jsonl", options);
  ASSERT_FALSE(too_few);
  EXPECT_THAT(too_few.error().message, HasSubstr("only 1 arrivals"));
}

TEST_F(FormatTest, Azure) {
  const Trace trace = sample("azure.csv");
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_DOUBLE_EQ(trace.requests[0].arrival_s, 0);
  EXPECT_DOUBLE_EQ(trace.requests[1].arrival_s, 1.75) << "past midnight";
  EXPECT_EQ(trace.requests[0].input_tokens, 1025u);
  EXPECT_EQ(trace.requests[0].output_tokens, 10u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(3)) << "no two requests share a block";
  EXPECT_THAT(blocks_of(trace, 2), IsEmpty());
}

TEST_F(FormatTest, TokensAreCutAndChained) {
  TraceOptions options;
  options.block_tokens = 4;
  const Trace trace = sample("tokens.jsonl", options);
  ASSERT_EQ(trace.requests.size(), 4u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1, 2)) << "the last is partial";
  EXPECT_TRUE(trace.last_is_partial(trace.requests[0]));
  EXPECT_EQ(trace.requests[0].output_tokens, 3u);
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(0, 1)) << "the answer fills the second block, the ninth token is left";
  EXPECT_EQ(trace.requests[1].prompt_blocks, 1u);
  EXPECT_EQ(trace.requests[1].output_blocks, 1u);
  EXPECT_EQ(trace.requests[1].output_tokens, 2u);
  EXPECT_THAT(blocks_of(trace, 2), ElementsAre(0, 1)) << "with an answer, if an empty one, full blocks alone";
  EXPECT_THAT(blocks_of(trace, 3), ElementsAre(3, 4)) << "the same tokens after others are other blocks";
}

TEST_F(FormatTest, TextNeedsATokenizer) {
  const auto path = test_data() / "traces/text.jsonl";
  const auto none = load_trace(path);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(none.error().message, HasSubstr("name one"));

  TraceOptions options;
  options.block_tokens = 8;
  options.tokenize = letters;
  const Trace trace = sample("text.jsonl", options);
  EXPECT_EQ(trace.requests[0].input_tokens, 10u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1));
  EXPECT_EQ(trace.requests[0].output_blocks, 1u);
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(0, 1, 2)) << "the conversation so far, then more";

  options.tokenize = [](std::string_view) -> Result<std::vector<std::int32_t>> {
    return fail(ErrorCode::kUnsupported, "no such letter");
  };
  EXPECT_THAT(error_of("{\"timestamp\": 0, \"prompt\": \"x\"}\n", options), "1:28: no such letter");
}

TEST_F(FormatTest, Plain) {
  const Trace trace = sample("plain.trace");
  EXPECT_EQ(trace.block_tokens, 16u);
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_THAT(blocks_of(trace, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(blocks_of(trace, 1), ElementsAre(0, 1, 2, 4, 5));
  EXPECT_EQ(trace.requests[1].output_blocks, 2u);
  EXPECT_THAT(blocks_of(trace, 2), ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_DOUBLE_EQ(trace.requests[2].arrival_s, 1.25);
  EXPECT_EQ(trace.requests[2].input_tokens, 90u);
  EXPECT_EQ(trace.requests[0].output_tokens, 20u);
}

TEST_F(FormatTest, LastLinesNeedNoEndAndMayHaveTwoBytes) {
  EXPECT_EQ(trace_of("shale-trace 1 16\r\n0 16 0 7\r\n1 16 0 7").requests.size(), 2u);
  const auto path = gzip("shale-trace 1 16\n0 16 0 7\n1 16 0 7");
  EXPECT_EQ(requests_of(path).size(), 2u);
}

TEST_F(FormatTest, ArrivalsThatGoBackAreRefusedOrSorted) {
  const std::string text = "shale-trace 1 16\n5 16 0 1\n3 16 0 2\n5 16 0 3\n4 16 0 1\n";
  EXPECT_THAT(error_of(text), HasSubstr("3:1: the request comes 2 s before the one above it"));
  TraceOptions options;
  options.sort = true;
  const Trace trace = trace_of(text, options);
  std::vector<double> arrivals;
  Blocks first;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    arrivals.push_back(trace.requests[i].arrival_s);
    first.push_back(blocks_of(trace, i)[0]);
  }
  EXPECT_THAT(arrivals, ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(first, ElementsAre(1, 0, 0, 2)) << "equal arrivals in the file's order";
}

}  // namespace
}  // namespace shale::testing
