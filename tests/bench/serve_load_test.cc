// The load that `shale bench serve` puts on a server.
#include "loadtest/serve/serve_load.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "support/byte_tokenizer.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

std::vector<LoadContext> contexts_of(std::size_t count, std::size_t tokens = 100) {
  std::vector<LoadContext> contexts;
  for (std::size_t i = 0; i < count; ++i) {
    contexts.push_back({std::to_string(i), std::vector<Token>(tokens, 40), {"Who?", "What?", "Why?"}});
  }
  return contexts;
}

std::vector<LoadRequest> load_of(const ServeLoadOptions& options) {
  static const auto contexts = contexts_of(12);
  return make_load(contexts, {}, options).value();
}

TEST(ServeLoad, TheSeedSaysEverything) {
  const auto load = load_of({.requests = 50, .seed = 3});
  ASSERT_EQ(load.size(), 50u);
  EXPECT_EQ(load, load_of({.requests = 50, .seed = 3}));
  EXPECT_NE(load, load_of({.requests = 50, .seed = 4}));
  const auto longer = load_of({.requests = 80, .seed = 3});
  EXPECT_TRUE(std::equal(load.begin(), load.end(), longer.begin())) << "a longer load begins alike";
}

TEST(ServeLoad, AnotherRateIsTheSameRequestsAtOtherTimes) {
  const auto load = load_of({.requests = 50});
  const auto fast = at_rate(load, 4);
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_DOUBLE_EQ(4 * fast[i].at_s, load[i].at_s);
    EXPECT_EQ(fast[i].context, load[i].context);
    EXPECT_EQ(fast[i].question, load[i].question);
  }
}

TEST(ServeLoad, ChatsAskTheirContextsQuestionsInTurn) {
  const ServeLoadOptions options{.requests = 11, .turns = 4};
  const auto contexts = contexts_of(12);
  const auto load = make_load(contexts, {}, options).value();
  ASSERT_EQ(load.size(), 11u);
  EXPECT_EQ(chats_of(options), 3u);
  for (std::size_t i = 0; i < load.size(); ++i) {
    const LoadRequest &request = load[i], &first = load[i - i % 4];
    EXPECT_EQ(request.chat, i / 4);
    EXPECT_EQ(request.turn, i % 4 + 1);
    EXPECT_EQ(request.context, first.context);
    if (request.turn < 4) {
      EXPECT_EQ(request.question, (first.question + i % 4) % 3);
      EXPECT_EQ(question_of(contexts[0], request.question), contexts[0].questions[request.question]);
    } else {
      EXPECT_GE(request.question, 3u) << "each was asked";
      EXPECT_FALSE(question_of(contexts[0], request.question).empty());
    }
  }
}

TEST(ServeLoad, OneQuestionIsFollowedByGeneralOnes) {
  std::vector<LoadContext> contexts = contexts_of(3);
  for (LoadContext& context : contexts) context.questions = {"Who?"};
  const auto load = make_load(contexts, {}, {.requests = 60, .turns = 20}).value();
  std::set<std::string_view> openers;
  for (std::size_t i = 0; i < load.size(); ++i) {
    const std::string_view question = question_of(contexts[0], load[i].question);
    EXPECT_EQ(question == "Who?", load[i].turn == 1);
    if (load[i].turn > 1) {
      EXPECT_NE(load[i].question, load[i - 1].question);
    }
    if (load[i].turn == 2) openers.insert(question);
  }
  EXPECT_GT(openers.size(), 1u) << "not every chat goes on alike";
}

TEST(ServeLoad, TheRateIsThatOfAllRequestsAndPausesArePeoples) {
  const ServeLoadOptions options{.requests = 20'000, .turns = 4, .turn_gap_s = 3};
  const auto load = load_of(options), fast = at_rate(load, 8);
  EXPECT_EQ(load, load_of(options));
  EXPECT_NEAR(load[19'996].at_s / 20'000, 1, 0.05);
  double pauses = 0;
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load[i].pause_s > 0, load[i].turn > 1);
    EXPECT_EQ(fast[i].pause_s, load[i].pause_s);
    EXPECT_DOUBLE_EQ(8 * fast[i].at_s, load[i].at_s);
    pauses += load[i].pause_s;
  }
  EXPECT_NEAR(pauses / 15'000, 3, 0.1);
}

TEST(ServeLoad, ChatsOfOneTurnAreWhatChatsBeginWith) {
  const auto chats = load_of({.requests = 40, .turns = 2}), single = load_of({.requests = 20});
  for (std::size_t i = 0; i < single.size(); ++i) {
    LoadRequest first = chats[2 * i];
    first.at_s /= 2;
    EXPECT_EQ(first, single[i]);
  }
}

TEST(ServeLoad, ArrivesAtRandomOnceASecond) {
  const auto load = load_of({.requests = 5000});
  EXPECT_NEAR(load.back().at_s / 5000, 1, 0.05);
  EXPECT_TRUE(std::ranges::is_sorted(load, {}, &LoadRequest::at_s));
  std::size_t close = 0;  // gaps below a tenth of the mean; of an exponential distribution 9.5 %
  for (std::size_t i = 1; i < load.size(); ++i) close += load[i].at_s - load[i - 1].at_s < 0.1;
  EXPECT_NEAR(static_cast<double>(close) / 5000, 0.095, 0.015);
}

TEST(ServeLoad, PopularityIsZipfs) {
  const auto counts_of = [](double zipf) {
    std::map<std::size_t, double> asked;
    for (const LoadRequest& request : load_of({.requests = 12000, .zipf = zipf})) ++asked[request.context];
    std::vector<double> counts;
    for (const auto& [context, count] : asked) counts.push_back(count);
    std::ranges::sort(counts, std::greater());
    return counts;
  };
  const auto skewed = counts_of(1), even = counts_of(0);
  ASSERT_EQ(skewed.size(), 12u);
  EXPECT_NEAR(skewed[0] / skewed[1], 2, 0.2);
  EXPECT_NEAR(skewed[0] / skewed[3], 4, 0.5);
  ASSERT_EQ(even.size(), 12u);
  EXPECT_LT(even[0] / even[11], 1.2);
}

class TraceLoad : public ::testing::Test {
 protected:
  std::string trace(const std::string& rows) {
    const auto path = folder_.path() / "trace.csv";
    std::ofstream(path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n" << rows;
    return path;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(TraceLoad, HasTheTracesTimesAndLengths) {
  const auto path = trace(
      "2023-11-16 18:00:00.0,50,7\n2023-11-16 18:00:01.0,900,40\n2023-11-16 18:00:08.0,0,0\n"
      "2023-11-16 18:10:00.0,1,1\n");
  const auto arrivals = read_arrivals(path, 3).value();
  EXPECT_DOUBLE_EQ(rate_of(arrivals), 0.25);
  const auto contexts = contexts_of(4);
  const auto load = make_load(contexts, arrivals, {.requests = 3, .answer_tokens = 16}).value();
  const auto own = at_rate(load, rate_of(arrivals)), twice = at_rate(load, 0.5);
  EXPECT_DOUBLE_EQ(own[1].at_s, 1);
  EXPECT_DOUBLE_EQ(own[2].at_s, 8);
  EXPECT_DOUBLE_EQ(twice[2].at_s, 4);
  EXPECT_EQ(load[0].context_tokens, 50u);
  EXPECT_EQ(load[0].answer_tokens, 7u);
  EXPECT_EQ(load[1].context_tokens, 100u) << "a context is as long as it is";
  EXPECT_EQ(load[1].answer_tokens, 16u) << "at most as long as asked";
  EXPECT_EQ(load[2].context_tokens, 1u);
  EXPECT_EQ(load[2].answer_tokens, 1u);
}

TEST_F(TraceLoad, GivesChatsTheirTimesAndLengths) {
  const auto path = trace("2023-11-16 18:00:00.0,50,7\n2023-11-16 18:00:01.0,900,40\n2023-11-16 18:00:08.0,20,1\n");
  const ServeLoadOptions options{.requests = 5, .turns = 2};
  const auto arrivals = read_arrivals(path, chats_of(options)).value();
  const auto contexts = contexts_of(4);
  const auto load = make_load(contexts, arrivals, options).value();
  const auto own = at_rate(load, 2 * rate_of(arrivals));
  EXPECT_DOUBLE_EQ(own[2].at_s, 1);
  EXPECT_DOUBLE_EQ(own[4].at_s, 8);
  EXPECT_EQ(load[1].context_tokens, 50u) << "a chat's context stays as it is";
  EXPECT_EQ(load[1].answer_tokens, 7u);
}

TEST_F(TraceLoad, ATraceThatIsTooShortSaysSo) {
  const auto path = trace("2023-11-16 18:00:00.0,50,7\n2023-11-16 18:00:00.0,9,4\n");
  EXPECT_THAT(read_arrivals(path, 3).error().message, HasSubstr("has 2 requests"));
  EXPECT_THAT(read_arrivals(path, 2).error().message, HasSubstr("all at once"));
  EXPECT_EQ(read_arrivals("/nowhere.csv", 2).error().code, ErrorCode::kNotFound);
}

TEST(LoadContexts, AreOpenedByAQuestionThatTheLoadDoesNotAsk) {
  LoadContext several{.id = "a", .questions = {"Who?", "What?"}, .answers = {{"I"}, {"that"}}};
  hold_back_opening(several);
  EXPECT_EQ(several.opening, "Who?");
  EXPECT_EQ(several.questions, std::vector<std::string>{"What?"});
  EXPECT_EQ(several.answers, std::vector<std::vector<std::string>>{{"that"}});
  LoadContext one{.id = "b", .questions = {"Who?"}};
  hold_back_opening(one);
  EXPECT_EQ(one.questions, std::vector<std::string>{"Who?"});
  EXPECT_FALSE(one.opening.empty());
  EXPECT_NE(one.opening, "Who?");
  const std::vector<LoadContext> both = {several, one};
  const auto load = opening_load(both);
  ASSERT_EQ(load.size(), 2u);
  EXPECT_EQ(load[1].context, 1u);
  EXPECT_EQ(load[1].question, LoadRequest::kOpening);
  EXPECT_EQ(question_of(both[1], load[1].question), one.opening);
}

TEST(LoadContexts, AreCutToTokensAndWholeCharacters) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() / "contexts.jsonl";
  std::ofstream(file) << R"({"id":"a","context":"größer","questions":["Is it?"]})" << "\n"
                      << R"({"id":"b","context":"b","questions":["Is it?","Why?"]})" << "\n";
  const testing::ByteTokenizer tokenizer;
  const auto contexts = read_load_contexts(std::vector{file, file}, 2, 6, tokenizer).value();
  ASSERT_EQ(contexts.size(), 4u);
  EXPECT_EQ(contexts[0].tokens.size(), 6u);
  EXPECT_EQ(text_of(contexts[0], 6, tokenizer), "größ");
  EXPECT_EQ(text_of(contexts[0], 3, tokenizer), "gr") << "half a character is left out";
  EXPECT_EQ(text_of(contexts[0], 99, tokenizer), "größ");
  EXPECT_EQ(contexts[1].questions.size(), 2u);
  EXPECT_EQ(read_load_contexts(std::vector{file}, 1, 0, tokenizer).value().front().tokens.size(), 8u);
  std::ofstream(file, std::ios::trunc);
  EXPECT_EQ(read_load_contexts(std::vector{file}, 0, 0, tokenizer).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
