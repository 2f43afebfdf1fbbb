#include "server/token_teller.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/byte_tokenizer.h"

namespace shale {
namespace {

using testing::ByteTokenizer;

class TokenTellerTest : public ::testing::Test {
 protected:
  static Token of(char c) { return ByteTokenizer::kFirstByte + static_cast<unsigned char>(c); }
  static DrawnToken drawn(char c, float logprob, std::vector<std::pair<Token, float>> top = {}) {
    return {of(c), Logprobs{logprob, std::move(top)}};
  }
  TokenTeller teller(Endpoint endpoint, TokenDetails details) const {
    return {endpoint, details, {.tokens = {4, 5}}, tokenizer_};
  }
  static Json part() { return {{"choices", {{{"index", 0}, {"logprobs", nullptr}}}}}; }

  ByteTokenizer tokenizer_;
  const std::vector<DrawnToken> tokens_ = {drawn('a', -0.5F, {{of('a'), -0.5F}, {of('b'), -1}}),
                                           drawn('c', -std::numeric_limits<float>::infinity(), {{of('a'), -0.25F}})};
};

TEST_F(TokenTellerTest, TellsNothingUnasked) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    Json answer = part();
    teller(endpoint, {}).tell(answer, tokens_);
    EXPECT_EQ(answer, part());
  }
}

TEST_F(TokenTellerTest, TellsIdsThePromptsOnce) {
  TokenTeller chat = teller(Endpoint::kChat, {.ids = true});
  Json first = part(), second = part();
  chat.tell_prompt(first);
  EXPECT_EQ(first["prompt_token_ids"], (Json{4, 5}));
  chat.tell(second, tokens_);
  EXPECT_FALSE(second.contains("prompt_token_ids"));
  EXPECT_EQ(second["choices"][0]["token_ids"], (Json{of('a'), of('c')}));
  EXPECT_TRUE(second["choices"][0]["logprobs"].is_null());

  Json completion = part();
  teller(Endpoint::kCompletions, {.ids = true}).tell(completion, tokens_);
  EXPECT_EQ(completion["choices"][0]["prompt_token_ids"], (Json{4, 5}));
  EXPECT_EQ(completion["choices"][0]["token_ids"], (Json{of('a'), of('c')}));
}

TEST_F(TokenTellerTest, TellsLogprobsAsOpenAIsChatsDo) {
  Json answer = part();
  teller(Endpoint::kChat, {.logprobs = 2}).tell(answer, tokens_);
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], (Json{'a'}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1], (Json{{"token", "b"}, {"logprob", -1.0}, {"bytes", {'b'}}}));
  EXPECT_EQ(content[1]["logprob"], -9999.0) << "JSON has no infinity";
}

// Whoever looks whether a token was the likeliest must not take another for it.
TEST_F(TokenTellerTest, TellsPartsOfCharactersApart) {
  Json answer = part();
  const std::vector<DrawnToken> tokens = {drawn('\xe2', -5, {{of('\xe3'), -0.25F}}), drawn('\x80', -1)};
  teller(Endpoint::kCompletions, {.logprobs = 1}).tell(answer, tokens);
  const Json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"bytes:\\xe2", "bytes:\\x80"}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (Json{{"bytes:\\xe2", -5.0}, {"bytes:\\xe3", -0.25}}));
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 1})) << "of the character's first byte, and behind it";
}

// SentencePiece puts a space before what it tokenizes: here a context and a prompt, which begins with one itself.
TEST_F(TokenTellerTest, SpacesThatTheTextHasNotTakeNoRoomInIt) {
  TokenTeller::Prompt prompt{.tokens = {ByteTokenizer::kBos}, .text = "Hi ho", .bos_added = true};
  for (const char c : {' ', 'H', 'i', ' ', ' ', 'h', 'o'}) prompt.tokens.push_back(of(c));
  const PromptLogprobs rated(prompt.tokens.size());
  TokenTeller completion(Endpoint::kCompletions, {.logprobs = 1, .echo = true}, std::move(prompt), tokenizer_);
  Json answer = part();
  answer["choices"][0]["text"] = "ac";
  completion.tell(answer, tokens_, rated);
  EXPECT_EQ(answer["choices"][0]["text"], "Hi hoac");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["text_offset"], (Json{0, 0, 0, 1, 2, 3, 3, 4, 5, 6}));
}

// Part by part, the offsets go on.
TEST_F(TokenTellerTest, TellsLogprobsAsOpenAIsCompletionsDo) {
  TokenTeller completion = teller(Endpoint::kCompletions, {.logprobs = 2});
  Json first = part(), second = part();
  completion.tell(first, tokens_);
  const Json& logprobs = first["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"a", "c"}));
  EXPECT_EQ(logprobs["token_logprobs"], (Json{-0.5, -9999.0}));
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 1}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (Json{{"a", -0.5}, {"b", -1.0}}));
  EXPECT_EQ(logprobs["top_logprobs"][1], (Json{{"c", -9999.0}, {"a", -0.25}})) << "the one drawn as well";
  completion.tell(second, {tokens_.data(), 1});
  EXPECT_EQ(second["choices"][0]["logprobs"]["text_offset"], (Json{2}));
}

}  // namespace
}  // namespace shale
