#include "profile/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/profile.h"
#include "support/engine_bench.h"

namespace shale {
namespace {

class DriftTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.open_tiny();
    text_ = testing::sentences(200);
  }

  std::vector<Token> tokens() { return make_prompt(*bench_.tokenizer, text_, {}).value().context; }
  MetadataStore& metadata_store() { return *bench_.cache->metadata_store(); }
  // Says of every profiled configuration that it agreed so far.
  void pretend(double agreement) {
    const Hash128 run = bench_.cache->run_of(tokens());
    const std::vector<QualityRecord> rows = metadata_store().qualities(run).value();
    for (QualityRecord row : rows) {
      row.quality = agreement;
      ASSERT_TRUE(metadata_store().record_quality(row));
    }
  }
  Result<DriftCheck> check(DriftOptions options = {}) {
    options.answer_tokens = 8;
    return check_drift(*bench_.engine, text_, options);
  }
  ContextProfile profile(std::vector<std::string> questions) {
    ProfileOptions options;
    options.methods = {"knorm", "int8", "knorm+kivi2", "knorm+int8/kivi2"};
    options.answer_tokens = 8;
    return profile_context(*bench_.engine, text_, std::move(questions), options).value();
  }

  testing::EngineBench bench_;
  std::string text_;
};

TEST_F(DriftTest, NeedsAProfileAndAQuestion) {
  EXPECT_EQ(check().error().code, ErrorCode::kNotFound);
  log_question(*bench_.cache, tokens(), "what is it?");
  EXPECT_EQ(check().error().code, ErrorCode::kNotFound);
  profile({"what is it?"});
  EXPECT_TRUE(check());
}

TEST_F(DriftTest, TheSameQuestionsMeasureWhatTheProfileDid) {
  profile({"what is it?", "how long?"});
  DriftOptions all;
  all.configurations = 100;
  const DriftCheck same = check(all).value();
  EXPECT_EQ(same.configurations, 13u) << "also those of several quantizers";
  EXPECT_NEAR(same.observed, same.profiled, 0.05);
  EXPECT_FALSE(same.drifted);
  EXPECT_GT(same.seconds, 0);
}

// Of texts, like those that users choose, but not by words: a tiny model says none.
class SameText final : public AnswerMetric {
 public:
  std::string_view name() const override { return "same"; }
  Result<double> compare(std::string_view answer, std::string_view reference) override { return answer == reference; }
};

// In a metric of texts, checks see the answers that profiles saw, and the full cache's own answer is worth 1.
TEST_F(DriftTest, ComparesAnswersInTheCachesMetric) {
  CacheOptions in_metric;
  in_metric.metric = std::make_shared<SameText>();
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, in_metric);
  ProfileOptions profiling;
  profiling.methods = {"knorm", "random"};
  profiling.answer_tokens = 8;
  const ContextProfile profile = profile_context(*bench.engine, text_, {"what is it?", "how long?"}, profiling).value();
  DriftOptions all;
  all.configurations = 100;
  all.answer_tokens = 8;
  log_question(*bench.cache, tokens(), "what is it?");
  log_question(*bench.cache, tokens(), "how long?");
  const DriftCheck same = check_drift(*bench.engine, text_, all).value();
  EXPECT_EQ(same.configurations, 8u);
  double mean = 0;
  for (const ProfileRow& row : profile.rows) mean += row.method.is_full() ? 0 : row.quality / 8;
  EXPECT_DOUBLE_EQ(same.profiled, mean);
  EXPECT_NEAR(same.observed, same.profiled, 0.05);

  Request request;
  request.spans = {{tokens(), true, "doc"}, {bench.tokenizer->tokenize("what is it?", false), false, {}}};
  request.policy.exact = true;
  request.max_tokens = 8;
  LossyAnswer given{
      .question = request.spans.back().tokens, .answer = bench.engine->run(request).tokens, .expected = 0.9};
  const DriftCheck whole = check_answers(*bench.engine, tokens(), {&given, 1}, all).value();
  EXPECT_EQ(whole.observed, 1);
  EXPECT_FALSE(whole.drifted);
  given.answer.resize(4);
  EXPECT_EQ(check_answers(*bench.engine, tokens(), {&given, 1}, all).value().observed, 1) << "it was cut there";
  given.ended = true;
  EXPECT_LT(check_answers(*bench.engine, tokens(), {&given, 1}, all).value().observed, 1);
  given.ended = false;
  given.answer.assign(8, bench.tokenizer->tokenize("!", false).front());
  const DriftCheck other = check_answers(*bench.engine, tokens(), {&given, 1}, all).value();
  EXPECT_LT(other.observed, 0.5);
  EXPECT_TRUE(other.drifted);
}

TEST_F(DriftTest, FallsBelowAProfileOfOtherQuestions) {
  profile({"what is it?"});
  pretend(1);
  DriftOptions strict, patient;
  strict.threshold = -0.1;  // so that nothing agrees enough
  EXPECT_TRUE(check(strict)->drifted);
  patient.threshold = 1;
  EXPECT_FALSE(check(patient)->drifted);
  pretend(0);
  EXPECT_FALSE(check()->drifted);
  // Profiled again on the questions of the check, it holds again: what was pretended is replaced.
  profile(check()->questions);
  const DriftCheck again = check().value();
  EXPECT_FALSE(again.drifted);
  EXPECT_GT(again.profiled, 0);
  EXPECT_NEAR(again.observed, again.profiled, 0.05);
}

TEST_F(DriftTest, LogsTheNewestQuestionsAlone) {
  profile({"what is it?"});
  const std::vector<Token> context = tokens();
  for (int i = 0; i < 50; ++i) log_question(*bench_.cache, context, "question " + std::to_string(i) + "?");
  log_question(*bench_.cache, context, "");
  log_question(*bench_.cache, context, std::string(kLoggedBytesMax + 1, 'x'));
  const auto logged = metadata_store().questions(bench_.cache->run_of(context)).value();
  ASSERT_EQ(logged.size(), MetadataStore::kQuestionsMax);
  EXPECT_EQ(logged.front().text, "question 49?");
  DriftOptions two;
  two.questions_max = 2;
  EXPECT_EQ(check(two)->questions, (std::vector<std::string>{"question 49?", "question 48?"}));
}

TEST_F(DriftTest, AsksNoQuestionsThatTheModelWrote) {
  const Hash128 run = bench_.cache->run_of(tokens());
  profile({"what is it?"});
  ASSERT_TRUE(metadata_store().record_question(run, {"what is it?", true}));
  EXPECT_EQ(check().error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace shale
