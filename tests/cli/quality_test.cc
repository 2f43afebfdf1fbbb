// `shale quality` through the program.
#include <gmock/gmock.h>

#include <fstream>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class QualityTest : public TinyProgram {
 protected:
  void SetUp() override {
    TinyProgram::SetUp();
    write_tiny_model({.vocabulary = kByteVocabulary, .tied_head = false}, home_.path() / "tiny.gguf",
                     [](gguf_context* metadata) { set_byte_vocabulary(metadata); });  // a quick one
    std::ofstream(contexts()) << R"({"id":"a","dataset":"own","context":"One sentence says little. Another says less. )"
                              << R"(A third is here for its length alone.","questions":["What?","Why?"],)"
                              << R"("answers":[["little"],["length"]]})" << "\n";
  }
  std::string contexts() const { return home_.path() / "contexts.jsonl"; }
  std::string rows() const { return home_.path() / "rows.jsonl"; }
  Words quality(Words more) const {
    Words words = {"quality", "--contexts", contexts(), "--rows", rows(), "--answer-tokens", "6", "--keeps", "0.5"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::size_t lines() const {
    std::ifstream in(rows());
    std::size_t count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }
};

TEST_F(QualityTest, MeasuresReportsAndGoesOn) {
  const Outcome first = run(quality({"--compare", "knorm,int8", "--generate", "knorm@0.5"}));
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("| knorm |"));
  EXPECT_THAT(first.out, HasSubstr("question not seen"));
  EXPECT_THAT(first.out, HasSubstr("gold_f1"));
  EXPECT_EQ(lines(), 4u);

  // Only what is new is measured, and everything is reported.
  const Outcome second = run(quality({"--compare", "knorm,int8,random", "--json"}));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(lines(), 6u);
  const Outcome report = run({"quality", "--rows", rows(), "--html", home_.path() / "page.html"});
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("| random |"));
  EXPECT_TRUE(std::filesystem::exists(home_.path() / "page.html"));

  std::ofstream(rows(), std::ios::app) << "{\"text\":\"\xc3";  // stopped while it wrote
  const std::string cut = read(rows());
  ASSERT_EQ(run({"quality", "--rows", rows()}).status, 0);
  EXPECT_EQ(read(rows()), cut) << "a report changes nothing";
  ASSERT_EQ(run(quality({"--compare", "knorm,int8,random"})).status, 0);
  EXPECT_EQ(lines(), 6u);
}

// What stands under --rows is gone on with only where it was measured with the same options, of the same texts.
TEST_F(QualityTest, OtherOptionsAndTextsAreMeasuredAnew) {
  const auto measure = [&](const char* answer_tokens, const char* window) {
    return run({"quality", "--contexts", contexts(), "--rows", rows(), "--compare", "knorm", "--keeps", "0.5",
                "--answer-tokens", answer_tokens, "--window", window});
  };
  ASSERT_EQ(measure("6", "64").status, 0);
  ASSERT_EQ(lines(), 2u);
  const Outcome shorter = measure("3", "64");
  ASSERT_EQ(shorter.status, 0) << shorter.err;
  EXPECT_EQ(lines(), 4u);
  EXPECT_THAT(shorter.out, HasSubstr("answers of 6 tokens"));
  EXPECT_THAT(shorter.out, HasSubstr("answers of 3 tokens"));
  ASSERT_EQ(measure("6", "8").status, 0);
  EXPECT_EQ(lines(), 6u);
  ASSERT_EQ(measure("6", "64").status, 0);
  EXPECT_EQ(lines(), 6u) << "it is known";

  std::string text = read(contexts());
  text.replace(text.find("little"), 6, "nothing");
  std::ofstream(contexts(), std::ios::trunc) << text;
  const Outcome edited = measure("6", "64");
  ASSERT_EQ(edited.status, 0) << edited.err;
  EXPECT_EQ(lines(), 8u);
  EXPECT_THAT(edited.out, Not(HasSubstr("answers of"))) << "rows of the older text are left out";
}

TEST_F(QualityTest, ContextsOfOneNameAreRefused) {
  std::string files;
  for (const std::string language : {"en", "de"}) {
    const std::string text = "One text, in " + language + ".";
    files += (files.empty() ? "" : ",") +
             file(language + "/dev.jsonl", R"({"id":"1","context":")" + text + R"(","questions":["What?"]})").string();
  }
  const Outcome both = run({"quality", "--contexts", files, "--rows", rows(), "--compare", "knorm"});
  EXPECT_EQ(both.status, 2) << both.err;
  EXPECT_THAT(both.err, AllOf(HasSubstr("'dev'"), HasSubstr("'1'"), HasSubstr("dataset")));
  EXPECT_EQ(lines(), 0u) << "nothing was measured";
}

TEST_F(QualityTest, ProfilesAgainWhereQuestionsMovedAway) {
  const Words profile = {"profile", "--context", context_, "--profile-methods", "knorm", "--answer-tokens", "6"};
  const auto with = [&](Words more) {
    Words words = profile;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Outcome early = run(with({"--if-drifted"}));
  EXPECT_EQ(early.status, 0);
  EXPECT_THAT(early.err, HasSubstr("never profiled"));
  for (const std::string option : {"--question", "--questions"}) {
    const Outcome both = run(with({"--if-drifted", option, context_}));
    EXPECT_EQ(both.status, 2);
    EXPECT_THAT(both.err, AllOf(HasSubstr("--if-drifted"), HasSubstr(option)));
  }
  ASSERT_EQ(run(with({"--question", "What?"})).status, 0);
  ASSERT_EQ(run(generate({"--max-tokens", "2"})).status, 0);
  const Outcome check = run(with({"--if-drifted", "--drift-threshold", "1", "--json"}));
  ASSERT_EQ(check.status, 0) << check.err;
  EXPECT_EQ(check.object()["drifted"], false);
  EXPECT_EQ(check.object()["questions"].size(), 2u) << "the profile's and the one that was asked";
}

TEST_F(QualityTest, AProfileIsComparedWithQuestionsHeldOutOfIt) {
  const auto held_out = file("held_out", "Why?\nWhere?\n");
  const Words profile = {"profile", "--context",  context_, "--profile-methods", "knorm", "--answer-tokens",
                         "6",       "--question", "What?",  "--held-out",        held_out};
  Words as_json = profile;
  as_json.push_back("--json");
  const auto object = run(as_json).object();
  EXPECT_EQ(object["questions"].dump(), R"(["What?"])");
  EXPECT_EQ(object["kind"], "records") << "its sentences have numbers";
  EXPECT_EQ(object["rows"].size(), 5u) << "the full cache, and four keeps";
  for (const auto& row : object["rows"]) {
    EXPECT_EQ(row["questions"], 1);
    EXPECT_EQ(row["held_out_agreement"].size(), 2u);
  }
  EXPECT_THAT(run(profile).out, HasSubstr("HELD OUT"));
}

TEST_F(QualityTest, AProfileMayBeOfADocumentsBeginning) {
  const auto tokens = [&](const std::string& most) {
    return run({"profile", "--context", context_, "--context-tokens", most, "--profile-methods", "knorm",
                "--answer-tokens", "6", "--question", "What?", "--json"})
        .object()["tokens"]
        .get<int>();
  };
  EXPECT_EQ(tokens("1000000"), tokens("0"));
  EXPECT_LE(tokens("80"), 80 + 16) << "and a block that a chat's first words take";
  EXPECT_LT(tokens("80"), tokens("0"));
}

TEST_F(QualityTest, PredictsAndSaysHowWell) {
  const Words predict = quality({"--compare", "knorm,random,int8", "--predict", "--contexts-max", "1"});
  const Outcome outcome = run(predict);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Agreement predicted"));
  EXPECT_EQ(lines(), 66u) << "of the context, and of the ten texts that ship with Shale";
  const Outcome again = run(predict);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(lines(), 66u) << "what was predicted is not predicted anew";
}

TEST_F(QualityTest, SeenQuestionsAreReportedApart) {
  ASSERT_EQ(run(quality({"--compare", "knorm"})).status, 0);
  const Outcome seen = run(quality({"--compare", "knorm", "--question-seen"}));
  ASSERT_EQ(seen.status, 0) << seen.err;
  EXPECT_THAT(seen.out, HasSubstr("question seen"));
  EXPECT_THAT(seen.out, HasSubstr("question not seen"));
}

TEST_F(QualityTest, WhatIsWrongIsNamed) {
  const auto refuses = [&](const Words& words, const std::string& part) {
    const Outcome outcome = run(words);
    EXPECT_NE(outcome.status, 0) << part;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  refuses({"quality"}, "--contexts");
  refuses(quality({"--compare", "nothing"}), "nothing");
  refuses(quality({"--compare", "knorm", "--bits", "5"}), "--bits 5");
  refuses(quality({"--generate", "knorm@2"}), "knorm@2");
  const Words none = {"quality", "--contexts", home_.path() / "none.jsonl", "--rows", rows()};
  refuses(none, "none.jsonl");
  refuses(none, "none.jsonl");  // and not that the rows are empty
  std::ofstream(rows()) << "no rows\n";
  refuses(quality({"--compare", "knorm"}), "rows.jsonl:1");
}

}  // namespace
}  // namespace shale::testing
