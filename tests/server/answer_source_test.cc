#include "server/answer_source.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using namespace std::chrono_literals;

class AnswerSourceTest : public testing::EngineTest {};

// However many have ended: what their tokens are told as takes memory, and time that is other clients', too.
TEST_F(AnswerSourceTest, TellsOfOneChoiceAtATime) {
  EngineLoop loop({}, *engine_, clock_);
  AnswerTokenCache answer_tokens(1 << 20);
  std::vector<Request> requests;
  std::vector<AnswerSource::Choice> choices;
  for (std::uint32_t i = 0; i < 3; ++i) {
    requests.push_back(ask(i, 40, 1));
    choices.push_back({.teller = TokenTeller(Endpoint::kCompletions, {}, {}, tokenizer_)});
  }
  AnswerHead head;
  head.endpoint = Endpoint::kCompletions;
  head.id = "cmpl-1";
  int wakes = 0;
  AnswerSource source(head, {}, std::move(choices), 1, loop.submit(std::move(requests), {}).value(), answer_tokens, {},
                      [&wakes] { ++wakes; });
  loop.stop(1h);  // once all have ended
  for (int told = 1; told < 3; ++told) {
    EXPECT_FALSE(source.next());
    EXPECT_EQ(wakes, told) << "to be asked again";
  }
  const auto part = source.next();
  ASSERT_TRUE(part && part->end);
  EXPECT_EQ(wakes, 2);
  EXPECT_EQ(part->response.type, "application/json");
  const Json answer = Json::parse(part->response.body);
  EXPECT_EQ(answer["id"], "cmpl-1");
  ASSERT_EQ(answer["choices"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  EXPECT_GT(answer["usage"]["completion_tokens"], 0);
}

}  // namespace
}  // namespace shale
