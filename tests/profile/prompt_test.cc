#include "profile/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/chat_prompt.h"
#include "support/byte_tokenizer.h"

namespace shale {
namespace {

using testing::ByteTokenizer;

std::string whole(const ByteTokenizer& tokenizer, const PromptParts& parts) {
  return tokenizer.text(parts.context, true) + "|" + tokenizer.text(parts.question, true);
}

TEST(Prompt, TheContextsTokensDoNotDependOnTheQuestion) {
  const ByteTokenizer tokenizer;
  const PromptParts one = make_prompt(tokenizer, "a text", "why?").value();
  const PromptParts other = make_prompt(tokenizer, "a text", "how so?").value();
  EXPECT_EQ(one.context, other.context);
  EXPECT_EQ(whole(tokenizer, one), "system:be briefuser:a text|\n\nwhy?assistant:");
  EXPECT_EQ(one.context.front(), ByteTokenizer::kBos);
  EXPECT_TRUE(one.templated);
}

TEST(Prompt, ASystemMessageReplacesTheDefault) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(whole(tokenizer, make_prompt(tokenizer, "a text", "why?", "shout").value()),
            "system:shoutuser:a text|\n\nwhy?assistant:");
}

TEST(Prompt, ControlTokensInTheUsersTextAreText) {
  const ByteTokenizer tokenizer;
  const PromptParts parts = make_prompt(tokenizer, "a<end>b", "c<turn>d").value();
  EXPECT_EQ(std::ranges::count(parts.context, ByteTokenizer::kEndOfTurn), 1) << "the system message's own";
  EXPECT_EQ(std::ranges::count(parts.question, ByteTokenizer::kTurn), 1) << "the assistant's turn";
  EXPECT_EQ(std::ranges::count(parts.question, ByteTokenizer::kEndOfTurn), 1);
}

TEST(Prompt, WithoutATemplateItIsPlainText) {
  const ByteTokenizer tokenizer(false);
  const PromptParts parts = make_prompt(tokenizer, "a text", "why?").value();
  EXPECT_FALSE(parts.templated);
  EXPECT_EQ(whole(tokenizer, parts), "a text|\n\nwhy?\n");
}

TEST(Prompt, WithoutAContextTheQuestionStandsAlone) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(whole(tokenizer, make_prompt(tokenizer, "", "why?").value()), "system:be briefuser:|why?assistant:");
}

TEST(Prompt, TheWordsOfAQuestionAreFoundAgain) {
  const ByteTokenizer templated, plain(false);
  for (const char* words : {"why is that?", "x"}) {
    const std::vector<Token> behind_text = templated.tokenize(std::string("\n\n") + words + "\n", false);
    EXPECT_EQ(words_of(templated, behind_text), words);
    const std::vector<ChatMessage> chat = {{.role = "system", .content = "A rock."},
                                           {.role = "user", .content = words}};
    const std::vector<Token> asked = chat_prompt(templated, chat, 0)->back().tokens;
    EXPECT_EQ(words_of(templated, asked), words);
    EXPECT_EQ(phrase_like(templated, asked, words), asked);
    EXPECT_EQ(words_of(plain, plain.tokenize(words, false)), words);
  }
  EXPECT_EQ(words_of(templated, {}), "");
}

TEST(Prompt, WhatFillsNoBlockGoesInFrontOfTheQuestions) {
  AskedContext context{.tokens = {1, 2, 3, 4, 5, 6, 7}, .questions = {{8}, {}}};
  ASSERT_TRUE(keep_whole_blocks(context, 3));
  EXPECT_EQ(context.tokens, (std::vector<Token>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(context.questions, (std::vector<std::vector<Token>>{{7, 8}, {7}}));
  ASSERT_TRUE(keep_whole_blocks(context, 6));
  EXPECT_EQ(context.questions[1], (std::vector<Token>{7}));
  EXPECT_EQ(keep_whole_blocks(context, 16).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
