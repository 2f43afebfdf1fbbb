// Synthetic load is what its options say, again and again.
#include "trace/synthetic.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "trace/questions.h"
#include "trace/trace_files.h"
#include "trace/trace_statistics.h"
#include "trace/zipf.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class SyntheticTest : public TraceFiles {
 protected:
  template <class Load>
  static Trace make(const Load& load) {
    auto reader = generate(load);
    EXPECT_TRUE(reader) << reader.error().message;
    auto trace = load_trace(**reader, "made");
    EXPECT_TRUE(trace) << trace.error().message;
    return std::move(*trace);
  }

  static std::vector<double> gaps(const ArrivalOptions& options, int count) {
    auto process = ArrivalProcess::create(options, 3);
    EXPECT_TRUE(process) << process.error().message;
    std::vector<double> found;
    double before = 0;
    for (int i = 0; i < count; ++i) {
      const double now = process->next();
      found.push_back(now - before);
      before = now;
    }
    return found;
  }
  // Mean, and standard deviation over mean.
  static std::pair<double, double> shape(const std::vector<double>& numbers) {
    const auto count = static_cast<double>(numbers.size());
    const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / count;
    double squares = 0;
    for (const double x : numbers) squares += (x - mean) * (x - mean);
    return {mean, std::sqrt(squares / count) / mean};
  }

  static void expect_sound(const Trace& trace, std::uint64_t requests) {
    ASSERT_EQ(trace.requests.size(), requests);
    EXPECT_EQ(trace.requests.front().arrival_s, 0);
    double before = 0;
    for (const TraceRequest& request : trace.requests) {
      EXPECT_GE(request.arrival_s, before);
      before = request.arrival_s;
      const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
      EXPECT_EQ(request.prompt_blocks, request.input_tokens / trace.block_tokens);
      EXPECT_EQ(request.prompt_blocks + request.output_blocks, tokens / trace.block_tokens);
    }
  }
};

TEST_F(SyntheticTest, ZipfIsZipf) {
  for (const double s : {0.0, 0.5, 1.0, 1.7}) {
    constexpr std::uint64_t kRanks = 50, kDraws = 200'000;
    Zipf zipf(kRanks, s);
    Random random(11);
    std::vector<double> counts(kRanks, 0);
    for (std::uint64_t i = 0; i < kDraws; ++i) ++counts.at(zipf.draw(random));
    double weights = 0, chi_squared = 0;
    for (std::uint64_t k = 1; k <= kRanks; ++k) weights += std::pow(static_cast<double>(k), -s);
    for (std::uint64_t k = 1; k <= kRanks; ++k) {
      const double expected = kDraws * std::pow(static_cast<double>(k), -s) / weights;
      chi_squared += (counts[k - 1] - expected) * (counts[k - 1] - expected) / expected;
    }
    EXPECT_LT(chi_squared, 100) << "49 degrees of freedom; exponent " << s;
  }
  Random random(1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Zipf(1, 1.2).draw(random), 0u);
}

TEST_F(SyntheticTest, LengthsStayWithinTheirBoundsHoweverWideTheySpread) {
  Random random(5);
  std::set<std::uint64_t> lengths;
  for (int i = 0; i < 10'000; ++i) lengths.insert(random.log_normal(1 << 24, 10, 1000));
  EXPECT_EQ(*lengths.begin(), 1u);
  EXPECT_EQ(*lengths.rbegin(), 1000u);
}

TEST_F(SyntheticTest, ArrivalsHaveTheirRateAndTheirShape) {
  const auto poisson = shape(gaps({.per_s = 4}, 50'000));
  EXPECT_NEAR(poisson.first, 0.25, 0.01);
  EXPECT_NEAR(poisson.second, 1, 0.03);

  const auto bursty = shape(gaps({.kind = ArrivalKind::kBursty, .per_s = 4, .burst_factor = 8}, 200'000));
  EXPECT_NEAR(bursty.first, 0.25, 0.02);
  EXPECT_GT(bursty.second, 1.5);

  // By quarters of the day: most in the first half, when the sine is up.
  const ArrivalOptions diurnal = {.kind = ArrivalKind::kDiurnal, .per_s = 4, .swing = 0.9, .period_s = 1000};
  double now = 0;
  std::vector<double> quarters(4, 0);
  for (const double gap : gaps(diurnal, 40'000)) {
    now += gap;
    ++quarters[static_cast<std::size_t>(std::fmod(now, 1000) / 250)];
  }
  EXPECT_NEAR(now / 40'000, 0.25, 0.01);
  const double half = 2 * 0.9 / M_PI;  // the sine's mean over its upper half, times the swing
  EXPECT_NEAR((quarters[0] + quarters[1]) / 40'000, (1 + half) / 2, 0.02);
  EXPECT_NEAR(quarters[0] / quarters[1], 1, 0.1);
}

TEST_F(SyntheticTest, DocumentsAreReusedAsTheirPopularitySays) {
  DocumentLoad load;
  load.load.requests = 5000;
  load.load.arrivals.per_s = 10;
  load.documents = 200;
  const Trace trace = make(load);
  expect_sound(trace, 5000);
  EXPECT_NEAR(trace.requests.back().arrival_s, 500, 30);
  // As many different first blocks as documents long enough to fill one, or nearly.
  std::map<BlockId, std::size_t> documents;
  for (const TraceRequest& request : trace.requests) {
    if (request.prompt_blocks >= 3) ++documents[trace.prompt(request)[0]];
  }
  EXPECT_GT(documents.size(), 190u);
  EXPECT_LE(documents.size(), 201u);
  const TraceStatistics popular = trace_statistics(trace);
  EXPECT_NEAR(popular.prompt_tokens.p50, 8000, 4000);
  load.zipf = 0;
  load.documents = 100'000;
  EXPECT_LT(trace_statistics(make(load)).hit_ratio_unbounded, 0.1);
  EXPECT_GT(popular.hit_ratio_unbounded, 0.8);
}

TEST_F(SyntheticTest, SessionsGoOnFromTheirAnswers) {
  SessionLoad load = chat_load();
  load.load = {.seed = 4, .requests = 4000, .block_tokens = 16, .arrivals = {.per_s = 2}};
  const Trace trace = make(load);
  expect_sound(trace, 4000);
  std::size_t answers = 0, continued = 0, first_turns = 0;
  std::map<BlockId, bool> answer_ends;
  for (const TraceRequest& request : trace.requests) {
    const auto prompt = trace.prompt(request);
    bool goes_on = false;
    for (const BlockId block : prompt) goes_on |= answer_ends.contains(block);
    (goes_on ? continued : first_turns) += 1;
    if (request.output_blocks > 0) {
      answer_ends[trace.conversation(request).back()] = true;
      ++answers;
    }
    EXPECT_LE(request.input_tokens + request.output_tokens, load.context_max);
  }
  EXPECT_GT(answers, 3900u);
  EXPECT_NEAR(static_cast<double>(first_turns) / 4000, 1 / load.turns_mean, 0.05);
}

TEST_F(SyntheticTest, AgentsStayWithinTheirContextAndHaveSubagents) {
  SessionLoad load = agent_load();
  load.load = {.seed = 4, .requests = 3000, .block_tokens = 64, .arrivals = {.per_s = 2}};
  load.context_max = 30'000;
  const Trace trace = make(load);
  expect_sound(trace, 3000);
  const TraceStatistics with = trace_statistics(trace);
  EXPECT_LE(with.prompt_tokens.max, load.context_max);
  EXPECT_GT(with.hit_ratio_unbounded, 0.8);
  // One session at a time: without subagents, a request goes on from the one before it, but where a session ends.
  load.load.arrivals.per_s = 1e-4;
  load.summary_tokens = 0;
  load.context_max = 1'000'000;
  const auto interruptions = [&](double subagents) {
    load.subagents_per_turn = subagents;
    const Trace t = make(load);
    std::size_t count = 0;
    for (std::size_t i = 1; i < t.requests.size(); ++i) {
      const auto before = t.conversation(t.requests[i - 1]), now = t.prompt(t.requests[i]);
      count += now.size() < before.size() || now[before.size() - 1] != before.back();
    }
    return static_cast<double>(count) / static_cast<double>(t.requests.size());
  };
  EXPECT_NEAR(interruptions(0), 1 / load.turns_mean, 0.01);
  EXPECT_GT(interruptions(0.1), 0.3);
}

TEST_F(SyntheticTest, SeedsDecide) {
  SessionLoad chats = chat_load();
  DocumentLoad documents;
  const auto same = [](const Trace& a, const Trace& b) {
    return a.blocks == b.blocks && a.requests.back().arrival_s == b.requests.back().arrival_s;
  };
  EXPECT_TRUE(same(make(chats), make(chats)));
  EXPECT_TRUE(same(make(documents), make(documents)));
  const Trace chats_before = make(chats), documents_before = make(documents);
  chats.load.seed = documents.load.seed = 2;
  EXPECT_FALSE(same(make(chats), chats_before));
  EXPECT_FALSE(same(make(documents), documents_before));
}

TEST_F(SyntheticTest, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [](const auto& load) {
    const auto reader = generate(load);
    return reader ? std::string("accepted") : reader.error().message;
  };
  DocumentLoad documents;
  documents.documents = 0;
  EXPECT_THAT(refused(documents), HasSubstr("documents"));
  documents = {};
  documents.zipf = -1;
  EXPECT_THAT(refused(documents), HasSubstr("exponent"));
  documents = {};
  documents.answer.median = 0;
  EXPECT_THAT(refused(documents), HasSubstr("answers"));
  documents = {};
  documents.load.arrivals.per_s = 0;
  EXPECT_THAT(refused(documents), HasSubstr("rate"));
  documents = {};
  documents.load.arrivals = {.kind = ArrivalKind::kBursty, .burst_factor = 20, .burst_share = 0.1};
  EXPECT_THAT(refused(documents), HasSubstr("factor"));
  documents.load.arrivals = {.kind = ArrivalKind::kDiurnal, .swing = 2};
  EXPECT_THAT(refused(documents), HasSubstr("swings"));
  SessionLoad chats;
  chats.turns_mean = 0;
  EXPECT_THAT(refused(chats), HasSubstr("turns"));
  chats = {};
  chats.summary_tokens = 1'000'000;
  EXPECT_THAT(refused(chats), HasSubstr("summary"));
  chats = {};
  for (const std::uint32_t tokens : {0u, (1u << 20) + 1}) {
    chats.load.block_tokens = tokens;
    EXPECT_THAT(refused(chats), HasSubstr("blocks of 1 to 1048576 tokens")) << "no reader takes other ones";
  }
}

class QuestionsTest : public TraceFiles {
 protected:
  static Result<std::vector<std::int32_t>> letters(std::string_view text) {
    return std::vector<std::int32_t>(text.begin(), text.end());
  }
  Result<Trace> ask(const std::filesystem::path& path, const QuestionOptions& options) {
    const auto reader = ask_questions(std::vector{path}, options);
    if (!reader) return std::unexpected(reader.error());
    return load_trace(**reader, "questions");
  }
  QuestionOptions options_ = {.block_tokens = 8, .batch = 2, .batch_gap_s = 3, .tokenize = letters};
  std::filesystem::path sample_ = test_data() / "traces/questions.jsonl";
};

TEST_F(QuestionsTest, EachIsAskedAfterItsDocument) {
  options_.repeats = 10;
  const auto trace = ask(sample_, options_);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 30u);
  std::map<std::uint32_t, std::size_t> lengths;
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_DOUBLE_EQ(trace->requests[i].arrival_s, 3.0 * static_cast<double>(i / 2)) << "batches of two";
    ++lengths[trace->requests[i].input_tokens];
  }
  // 25 + "\n\nWhat?" and "\n\nWhy?", 49 + "\n\nWhich?"; the first accepted answers are 5, 7 and 7 letters long.
  EXPECT_EQ(lengths, (std::map<std::uint32_t, std::size_t>{{25 + 6, 10}, {25 + 7, 10}, {49 + 8, 10}}));
  EXPECT_EQ(trace->unique_blocks(), 3u + 1 + 1 + 6 + 2);
  EXPECT_EQ(trace_statistics(*trace).output_tokens, 10u * (5 + 7 + 7));

  options_.seed = 2;
  const auto shuffled = ask(sample_, options_);
  const auto order = [](const Trace& t) {
    std::vector<std::uint32_t> found;
    for (const TraceRequest& r : t.requests) found.push_back(r.input_tokens);
    return found;
  };
  EXPECT_NE(order(*shuffled), order(*trace));
  EXPECT_EQ(order(*shuffled), order(*ask(sample_, options_)));
}

TEST_F(QuestionsTest, SaysWhatIsWrong) {
  const auto error = [&](const std::string& text) {
    const auto trace = ask(file(text, "q"), options_);
    return trace ? std::string("no error") : trace.error().message;
  };
  EXPECT_THAT(error(R"({"questions": ["a"]})"), HasSubstr("q:1:1: \"context\" is missing"));
  EXPECT_THAT(error(R"({"context": "c"})"), HasSubstr("q:1:1: \"questions\" is missing"));
  EXPECT_THAT(error(R"({"context": "c", "questions": "a"})"), HasSubstr("q:1:31: an array"));
  EXPECT_THAT(error(R"({"context": "c", "questions": ["a"], "answers": [["b"], ["c"]]})"),
              HasSubstr("q:1:49: 2 answers to 1 questions"));
  EXPECT_THAT(error(R"({"context": "c", "questions": []})"), HasSubstr("without a question"));
  options_.tokenize = {};
  EXPECT_THAT(ask(sample_, options_).error().message, HasSubstr("name one"));
}

}  // namespace
}  // namespace shale::testing
