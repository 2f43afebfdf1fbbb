#include "profile/questions.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Questions, OnlyTheFirstQuestionIsTaken) {
  EXPECT_EQ(first_question("What is a page? And what is a block?"), "What is a page?");
  EXPECT_EQ(first_question("Sure! Here is a question: what does the text\nsay about pages?"),
            "What does the text say about pages?");
  EXPECT_EQ(first_question("Question: \"Who may copy this license?\""), "Who may copy this license?");
  EXPECT_EQ(first_question("1. What is the purpose of this license?\n2. Who?"), "What is the purpose of this license?");
  EXPECT_EQ(first_question("  - how   is\tit done?"), "How is it done?");
  EXPECT_EQ(first_question("The text is about shale. What is it made of?"), "What is it made of?");
}

TEST(Questions, WhatIsNoQuestionIsRefused) {
  EXPECT_EQ(first_question(""), "");
  EXPECT_EQ(first_question("The license is long."), "");
  EXPECT_EQ(first_question("Why?"), "") << "too short to be about this text";
  EXPECT_EQ(first_question("???"), "");
  std::string endless = "What";
  for (int i = 0; i < 60; ++i) endless += " and";
  EXPECT_EQ(first_question(endless + "?"), "");
}

TEST(Questions, ParagraphsAreSpreadOverTheText) {
  const std::string filler(200, 'x');
  std::string text;
  for (char name = 'a'; name <= 'i'; ++name) text += std::string(1, name) + filler + "\n\nshort\n\n";
  const auto picked = pick_paragraphs(text, 3);
  ASSERT_EQ(picked.size(), 3u);
  EXPECT_EQ(picked[0].front(), 'b');
  EXPECT_EQ(picked[1].front(), 'e');
  EXPECT_EQ(picked[2].front(), 'h');
  EXPECT_EQ(pick_paragraphs(text, 100).size(), 9u) << "short ones hold no sentence worth asking about";
  EXPECT_TRUE(pick_paragraphs("", 3).empty());
}

}  // namespace
}  // namespace shale
