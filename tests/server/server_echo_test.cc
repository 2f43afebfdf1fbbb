// What tells how likely a model finds a text that it is given: `echo` and `prompt_logprobs`.
#include <gmock/gmock.h>

#include <string>

#include "server/server_fixture.h"

namespace shale {
namespace {

using testing::ServerTest;

class ServerEchoTest : public ServerTest {
 protected:
  static constexpr const char* kPath = "/v1/completions";

  static Json scored(Json prompt, Json more = Json::object()) {
    Json body = {{"model", "tiny"},  {"prompt", std::move(prompt)},
                 {"temperature", 0}, {"max_tokens", 1},
                 {"logprobs", 1},    {"seed", 1234},
                 {"echo", true}};
    body.update(more);
    return body;
  }
  Json choice(const Json& body) { return posted(kPath, body)["choices"][0]; }

  // What every client of OpenAI's old completions counts on.
  static void expect_whole(const Json& choice, std::size_t tokens) {
    const Json& told = choice["logprobs"];
    const std::string text = choice["text"];
    for (const char* field : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      ASSERT_EQ(told[field].size(), tokens) << field;
    }
    EXPECT_TRUE(told["token_logprobs"][0].is_null());
    EXPECT_TRUE(told["top_logprobs"][0].is_null());
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::string token = told["tokens"][i];
      EXPECT_EQ(text.substr(told["text_offset"][i], token.size()), token) << i;
      if (i == 0) continue;
      EXPECT_LE(told["token_logprobs"][i], 0) << i;
      EXPECT_EQ(told["top_logprobs"][i][token], told["token_logprobs"][i]) << i;
    }
  }
};

// As lm-evaluation-harness asks: tokens in a list of one list, and a token that it throws away.
TEST_F(ServerEchoTest, RepeatsThePromptWithItsLogProbabilities) {
  start();
  const std::string text = "Shale splits into thin layers; slate does not.";
  const Json tokens = tokenizer_.tokenize(text, false);
  const Json of_tokens = choice(scored(Json::array({tokens}), {{"ignore_eos", true}}));
  expect_whole(of_tokens, text.size() + 1);
  EXPECT_TRUE(std::string(of_tokens["text"]).starts_with(text));

  const Json answer = posted(kPath, scored(text));  // a BOS comes before it
  const Json& of_text = answer["choices"][0];
  EXPECT_EQ(answer["usage"]["prompt_tokens"], text.size() + 1);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1);
  expect_whole(of_text, text.size() + 2);
  EXPECT_TRUE(std::string(of_text["text"]).starts_with(text));

  const Json again = posted(kPath, scored(text));
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0) << "what is cached has no logits";
  EXPECT_EQ(again["choices"], answer["choices"]);
}

TEST_F(ServerEchoTest, AnswersNothingWhereNothingIsAskedFor) {
  start();
  const std::string text = "Shale splits.";
  const Json answer = posted(kPath, scored(text, {{"max_tokens", 0}, {"return_token_ids", true}}));
  const Json& of_prompt = answer["choices"][0];
  EXPECT_EQ(of_prompt["text"], text);
  EXPECT_EQ(of_prompt["finish_reason"], "length");
  EXPECT_EQ(of_prompt["token_ids"], Json::array());
  EXPECT_EQ(of_prompt["prompt_token_ids"].size(), text.size() + 1);
  expect_whole(of_prompt, text.size() + 1);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  const Json plain = choice(scored(text, {{"max_tokens", 0}, {"logprobs", nullptr}}));
  EXPECT_EQ(plain["text"], text);
  EXPECT_TRUE(plain["logprobs"].is_null());
}

TEST_F(ServerEchoTest, StreamsThePromptFirst) {
  start();
  const std::string text = "Shale splits.";
  for (const int tokens : {0, 1, 12}) {
    for (const Json& logprobs : {Json(2), Json(nullptr)}) {
      const Json body = scored(text, {{"max_tokens", tokens}, {"logprobs", logprobs}, {"ignore_eos", true}});
      const Json whole = choice(body);
      std::string said;
      Json told = {{"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"text_offset", Json::array()}};
      const std::vector<Json> events = streamed(kPath, body);
      EXPECT_TRUE(std::string(events.front()["choices"][0]["text"]).starts_with(text));
      for (const Json& event : events) {
        const Json& part = event["choices"][0];
        said += part["text"];
        if (part["logprobs"].is_null()) continue;
        for (auto& [field, values] : told.items()) {
          values.insert(values.end(), part["logprobs"][field].begin(), part["logprobs"][field].end());
        }
      }
      EXPECT_EQ(said, whole["text"]);
      for (const auto& [field, values] : told.items()) {
        EXPECT_EQ(values, logprobs.is_null() ? Json::array() : whole["logprobs"][field]) << field;
      }
    }
  }
}

// By token, as vLLM has them; of a chat beside its choices.
TEST_F(ServerEchoTest, TellsPromptLogprobsByThemselves) {
  start();
  const Json echoed = choice(scored("Shale splits.", {{"logprobs", 3}}));
  const Json alone = choice({{"prompt", "Shale splits."}, {"temperature", 0}, {"prompt_logprobs", 3}});
  const Json& told = alone["prompt_logprobs"];
  EXPECT_TRUE(alone["logprobs"].is_null());
  EXPECT_FALSE(echoed.contains("prompt_logprobs"));
  ASSERT_EQ(told.size(), 14u);
  EXPECT_TRUE(told[0].is_null());
  for (std::size_t i = 1; i < told.size(); ++i) {
    const std::string name = echoed["logprobs"]["tokens"][i];
    const Json& own = told[i][std::to_string(tokenizer_.tokenize(name, false)[0])];
    EXPECT_EQ(own["decoded_token"], name);
    EXPECT_EQ(own["logprob"], echoed["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(told[i].size(), own["rank"] <= 3 ? 3u : 4u);
  }
  const Json chat_answer = posted("/v1/chat/completions", chat("What is shale?", {{"prompt_logprobs", 0}}));
  ASSERT_EQ(chat_answer["prompt_logprobs"].size(), chat_answer["usage"]["prompt_tokens"].get<std::size_t>());
  EXPECT_TRUE(chat_answer["prompt_logprobs"][0].is_null());
  EXPECT_EQ(chat_answer["prompt_logprobs"][1].size(), 1u);
  EXPECT_FALSE(chat_answer["choices"][0].contains("prompt_logprobs"));
}

// The answer's are as many as were asked for, and so are the prompt's own.
TEST_F(ServerEchoTest, TellsAsManyOfEachAsWereAskedFor) {
  start();
  const Json both = choice(scored("Shale splits.", {{"logprobs", 0}, {"prompt_logprobs", 20}}));
  EXPECT_EQ(both["logprobs"]["top_logprobs"][3].size(), 1u);
  EXPECT_GE(both["prompt_logprobs"][3].size(), 20u);
  const Json other = choice(scored("Shale splits.", {{"logprobs", 20}, {"prompt_logprobs", 0}}));
  EXPECT_EQ(other["prompt_logprobs"][3].size(), 1u);
  EXPECT_GT(other["logprobs"]["top_logprobs"][3].size(), 1u);
}

// So that what a method costs a text can be read from the text's own probabilities.
TEST_F(ServerEchoTest, TellsOfWhatFollowsAContextThatAMethodCompressed) {
  start();
  const std::string context(100, 's');
  const Json body = scored("Shale splits.", {{"context", context}, {"method", "knorm"}, {"keep", 0.25}});
  const Json answer = choice(body);
  EXPECT_TRUE(std::string(answer["text"]).starts_with(context + "Shale splits."));
  const Json& logprobs = answer["logprobs"]["token_logprobs"];
  ASSERT_EQ(logprobs.size(), 1 + 100 + 13 + 1u);
  for (std::size_t i = 0; i < logprobs.size(); ++i) EXPECT_EQ(logprobs[i].is_null(), i <= 96) << i;  // whole blocks
  EXPECT_EQ(choice(body), answer) << "found as it was applied";
}

TEST_F(ServerEchoTest, SaysWhyItTellsNothing) {
  start();
  const auto refusal = [&](const char* path, const Json& body) {
    const auto result = post(path, body);
    EXPECT_EQ(result->status, 400);
    return std::string(Json::parse(result->body)["error"]["message"]);
  };
  EXPECT_THAT(refusal(kPath, scored("x", {{"echo", false}, {"max_tokens", 0}})), ::testing::HasSubstr("with `echo`"));
  EXPECT_THAT(refusal(kPath, scored("x", {{"stream", true}, {"prompt_logprobs", 1}})),
              ::testing::HasSubstr("leave `stream` out"));
  EXPECT_THAT(refusal("/v1/chat/completions", chat("x", {{"echo", true}})), ::testing::HasSubstr("for completions"));
}

}  // namespace
}  // namespace shale
