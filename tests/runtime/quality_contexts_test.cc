#include "runtime/quality_contexts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

namespace shale {
namespace {

TEST(QualityContextsTest, AreReadAndCut) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "few.jsonl";
  std::ofstream(path) << R"({"id":"a","context":"text","questions":["1?","2?"],"answers":[["x"],["y"]],"more":1})"
                      << "\n"
                      << R"({"id":"b","dataset":"own","context":"text","questions":["1?"]})" << "\n";
  const auto all = read_quality_contexts(path, 0, 1).value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].dataset, "few");
  EXPECT_EQ(all[0].questions, std::vector<std::string>{"1?"});
  EXPECT_EQ(all[0].answers, std::vector<std::vector<std::string>>{{"x"}});
  EXPECT_EQ(all[1].dataset, "own");
  EXPECT_TRUE(all[1].answers[0].empty());
  EXPECT_EQ(read_quality_contexts(path, 1, 9).value().size(), 1u);
  EXPECT_EQ(read_quality_contexts(path, 0, 0).value()[0].questions.size(), 2u);
}

TEST(QualityContextsTest, WhatIsNoneIsSaidWithItsLine) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "bad.jsonl";
  for (const std::string bad : {"nonsense", "{}", R"({"id":"a","context":"text","questions":[]})",
                                R"({"id":"a","context":3,"questions":["?"]})"}) {
    std::ofstream(path) << bad << "\n";
    const auto contexts = read_quality_contexts(path, 0, 9);
    ASSERT_FALSE(contexts) << bad;
    EXPECT_NE(contexts.error().message.find("bad.jsonl:1"), std::string::npos) << contexts.error().message;
  }
  EXPECT_EQ(read_quality_contexts(folder.path() / "none", 0, 1).error().code, ErrorCode::kNotFound);
}

TEST(QualityContextsTest, OneNameIsOfOneText) {
  const auto context = [](std::string dataset, std::string text, std::vector<std::string> questions) {
    return QualityContext{std::move(dataset), "1", std::move(text), std::move(questions), {}};
  };
  const auto refused = [](const std::vector<QualityContext>& contexts) {
    const Status status = check_names(contexts);
    return !status && status.error().code == ErrorCode::kInvalidArgument;
  };
  const QualityContext english = context("dev", "A text.", {"What?", "Why?"});
  EXPECT_TRUE(refused({english, context("dev", "Ein Text.", {"What?"})}));
  EXPECT_TRUE(refused({english, context("dev", "A text.", {"Why?"})})) << "another first question";
  EXPECT_FALSE(refused({english, context("dev", "A text.", {"What?"}), english})) << "these are the same";
  EXPECT_FALSE(refused({english, context("de", "Ein Text.", {"Was?"})}));
}

}  // namespace
}  // namespace shale
