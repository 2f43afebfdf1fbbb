#include "profile/quality_watch_fixture.h"

namespace shale {
namespace {

using testing::QualityWatchTest;

// Answers over int8 of the context, of which so much was expected.
class ServedAnswersTest : public QualityWatchTest {
 protected:
  Response answered(const std::vector<Token>& context, std::vector<Token> tokens) {
    Response response;
    response.lossy = true;
    response.tokens = std::move(tokens);
    response.sources = {{.where = "memory", .method = Method::parse("int8").value()}};
    response.sources[0].run = bench_.cache->run_of(context);
    response.sources[0].quality = 0.9;
    return response;
  }
  // The model of this test says again what it said.
  const std::vector<Token> kSaidByNone = {1, 2, 3, 4, 5, 6, 7, 8};
  // What the full cache says.
  std::vector<Token> exactly(Request request) {
    request.policy.exact = true;
    request.max_tokens = 8;
    return bench_.engine->run(std::move(request)).tokens;
  }
  // A context of 128 tokens or more, a turn behind it, and a question.
  Request chat(const std::string& question) {
    Request request = ask(question);
    request.spans.insert(request.spans.begin() + 1,
                         {bench_.tokenizer->tokenize(testing::sentences(300), false), true, "turn"});
    return request;
  }
};

TEST_F(ServedAnswersTest, ThatTheFullCacheWouldHaveGivenConfirmTheProfile) {
  QualityWatch watch(options_, *bench_.engine);
  for (std::uint32_t i = 0; i < options_.questions_between; ++i) {
    const Request request = ask("why" + std::to_string(i));
    watch.on_response(request, answered(context_, exactly(request)));
  }
  work_all(watch);
  EXPECT_EQ(watch.stats().checks, 1u);
  EXPECT_EQ(watch.stats().answers, options_.questions_between);
  EXPECT_EQ(watch.stats().drifted, 0u);
  EXPECT_EQ(watch.stats().profiled, 0u);
}

TEST_F(ServedAnswersTest, ThatItWouldNotHaveGivenHaveTheContextProfiledAgain) {
  QualityWatch watch(options_, *bench_.engine);
  for (std::uint32_t i = 0; i < options_.questions_between; ++i) {
    const Request request = ask("why" + std::to_string(i));
    watch.on_response(request, answered(context_, kSaidByNone));
  }
  work_all(watch);
  EXPECT_EQ(watch.stats().drifted, 1u);
  EXPECT_EQ(watch.stats().profiled, 1u);
  EXPECT_FALSE(profiled().empty());
}

// As choices of one request are at temperature 0, or a client that asks again.
TEST_F(ServedAnswersTest, ThatAreTheSameCountOnce) {
  QualityWatch watch(options_, *bench_.engine);
  for (std::uint32_t i = 0; i < 4 * options_.questions_between; ++i) {
    watch.on_response(ask("why"), answered(context_, kSaidByNone));
  }
  EXPECT_EQ(work_all(watch), 0);
  for (std::uint32_t i = 1; i < options_.questions_between; ++i) {
    const Request request = ask("why" + std::to_string(i));
    watch.on_response(request, answered(context_, exactly(request)));
  }
  EXPECT_GT(work_all(watch), 0);
  EXPECT_EQ(watch.stats().answers, options_.questions_between);
}

TEST_F(ServedAnswersTest, OfALaterTurnOfAChatAreOfThatTurn) {
  QualityWatch watch(options_, *bench_.engine);
  std::vector<Token> turn;
  for (std::uint32_t i = 0; i < options_.questions_between; ++i) {
    const Request request = chat("why" + std::to_string(i));
    turn = request.spans[0].tokens;
    turn.insert(turn.end(), request.spans[1].tokens.begin(), request.spans[1].tokens.end());
    watch.on_request(request);
    watch.on_response(request, answered(turn, kSaidByNone));
  }
  work_all(watch);
  EXPECT_EQ(watch.stats().questions, options_.questions_between) << "about what the chat begins with";
  EXPECT_EQ(watch.stats().drifted, 1u);
  const auto rows = metadata_store().qualities(bench_.cache->run_of(turn)).value();
  EXPECT_FALSE(rows.empty());
  for (const QualityRecord& row : rows) EXPECT_EQ(row.questions, options_.questions_between) << "all that was asked";
  EXPECT_TRUE(profiled().empty()) << "it served exact";
}

TEST_F(ServedAnswersTest, ThatCannotBeComparedAreNot) {
  QualityWatch watch(options_, *bench_.engine);
  for (int i = 0; i < 6; ++i) {
    Request sampled = ask("why" + std::to_string(i)), salted = sampled, named = sampled, penalized = sampled;
    sampled.sampling.temperature = 1;
    salted.policy.salt = "mine";
    named.policy.method = Method::parse("int8").value();
    penalized.sampling.presence_penalty = 1;  // not what the full cache says, either
    for (const Request& request : {sampled, salted, named, penalized}) {
      watch.on_response(request, answered(context_, kSaidByNone));
    }
    Response unknown = answered(context_, kSaidByNone);
    unknown.sources[0].quality.reset();
    watch.on_response(ask("how"), unknown);
  }
  EXPECT_EQ(work_all(watch), 0);
}

}  // namespace
}  // namespace shale
