#include "profile/profile.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "metadata/sqlite.h"
#include "support/byte_tokenizer.h"
#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

using testing::ByteTokenizer;

class ProfileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.open_tiny();
    text_ = testing::sentences(600);
  }

  ContextProfile profile(const ProfileOptions& options, std::vector<std::string> questions) {
    auto result = profile_context(*bench_.engine, text_, std::move(questions), options);
    EXPECT_TRUE(result) << result.error().message;
    return std::move(*result);
  }

  testing::EngineBench bench_;
  std::string text_;
};

TEST_F(ProfileTest, FullAgreesWithItselfAndRowsAreRecorded) {
  ProfileOptions options;
  options.methods = {"knorm", "snapkv+int8", "int8"};
  options.keeps = {0.5, 0.1};
  options.answer_tokens = 12;
  options.label = "a test";
  std::size_t done = 0, total = 0;
  const auto progress = [&](std::size_t d, std::size_t t) {
    done = d;
    total = t;
  };
  const auto result = profile_context(*bench_.engine, text_, {"what is it?", "how long?"}, options, progress);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(done, 6u);
  EXPECT_EQ(total, 6u);
  ASSERT_EQ(result->rows.size(), 6u);
  EXPECT_EQ(result->questions_by_model, 0u);

  const ProfileRow& full = result->rows.front();
  EXPECT_TRUE(full.method.is_full());
  EXPECT_EQ(full.agreement, 1);
  EXPECT_LT(full.kl, 1e-6);
  EXPECT_EQ(full.questions, 2u);
  const std::uint64_t bytes = result->tokens * bench_.model->page_shape().token_bytes();
  EXPECT_GE(full.bytes, bytes);
  EXPECT_LE(full.bytes, bytes + bytes / 50);
  for (const ProfileRow& row : result->rows) {
    EXPECT_GE(row.agreement, 0);
    EXPECT_LE(row.agreement, 1);
    EXPECT_GE(row.kl, 0);
    EXPECT_GT(row.bytes, 0u);
    if (row.keep < 1) {
      EXPECT_LT(row.bytes, full.bytes * 6 / 10);
    }
  }
  EXPECT_LT(result->rows.back().kl, result->rows[2].kl) << "int8 loses less than dropping nine tokens of ten";

  const MetadataStore& metadata_store = *bench_.cache->metadata_store();
  EXPECT_EQ(metadata_store.qualities(result->run).value().size(), 5u) << "all but full";
  EXPECT_EQ(metadata_store.quality_for(result->run, result->rows[1].method, 0.5).value().quality,
            result->rows[1].agreement);
  EXPECT_EQ(metadata_store.questions(result->run).value().size(), 2u);
  bench_.cache->drain(bench_.model->executor());
  std::vector<StoreExtent> stored;
  bench_.cache->store().for_each_extent([&](const StoreExtent& extent) { stored.push_back(extent); });
  ASSERT_FALSE(stored.empty()) << "the context was stored";
  EXPECT_EQ(stored.front().run, result->run);
  EXPECT_EQ(stored.front().label, "a test");
}

// Finds every answer a quarter as good as the full cache's.
class QuarterAsGood final : public AnswerMetric {
 public:
  std::string_view name() const override { return "quarter"; }
  Result<double> compare(std::string_view answer, std::string_view reference) override {
    ++compared;
    EXPECT_FALSE(answer.empty());
    EXPECT_FALSE(reference.empty());
    return 0.25;
  }
  int compared = 0;
};

TEST_F(ProfileTest, InAnotherMetricAnswersAreGeneratedAndCompared) {
  ProfileOptions options;
  options.methods = {"random", "int8"};
  options.keeps = {0.5, 0.1};
  options.answer_tokens = 12;
  options.held_out = {"and this?"};
  const std::vector<std::string> questions = {"what is it?", "how long?"};
  const ContextProfile agreed = profile(options, questions);
  for (const ProfileRow& row : agreed.rows) EXPECT_EQ(row.quality, row.agreement);

  const auto metric = std::make_shared<QuarterAsGood>();
  CacheOptions in_metric;
  in_metric.metric = metric;
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, in_metric);
  EXPECT_EQ(bench.cache->metric(), "quarter");
  const ContextProfile compared = profile_context(*bench.engine, text_, questions, options).value();
  ASSERT_EQ(compared.rows.size(), agreed.rows.size());
  EXPECT_EQ(metric->compared, 2 * 4) << "two questions, not those held out, of every configuration";
  for (std::size_t i = 0; i < agreed.rows.size(); ++i) {
    const ProfileRow& row = compared.rows[i];
    EXPECT_EQ(row.agreement, agreed.rows[i].agreement) << "is measured as before";
    EXPECT_EQ(row.quality, 0.25) << row.method.text() << ": the metric says so";
  }
  MetadataStore& metadata_store = *bench.cache->metadata_store();
  EXPECT_EQ(metadata_store.metric(), "quarter");
  EXPECT_EQ(metadata_store.quality_for(compared.run, compared.rows[2].method, 0.1)->quality, compared.rows[2].quality);
  ASSERT_TRUE(metadata_store.measure_in(kAgreement));
  EXPECT_TRUE(metadata_store.qualities(compared.run)->empty());
}

TEST_F(ProfileTest, IsTheSameAgainWithNothingComputedAnew) {
  ProfileOptions options;
  options.methods = {"keydiff"};
  options.keeps = {0.25};
  // What was measured to be good enough would take the exact copy's place otherwise.
  CacheOptions uncompressed;
  uncompressed.planner = "lru";
  uncompressed.load_always = true;
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, std::move(uncompressed));
  const auto profile_once = [&] { return profile_context(*bench.engine, text_, {"what is it?"}, options).value(); };
  const ContextProfile one = profile_once();
  bench.cache->drain(bench.model->executor());
  const auto fetched = [&] { return bench.cache->stats().cached.total(); };
  EXPECT_EQ(fetched(), 0u);
  const ContextProfile other = profile_once();
  EXPECT_EQ(fetched(), one.tokens - bench.cache->block_tokens()) << "all but the last block";
  EXPECT_EQ(one.run, other.run);
  EXPECT_EQ(one.rows[1].agreement, other.rows[1].agreement);
  EXPECT_NEAR(one.rows[1].kl, other.rows[1].kl, 1e-4 + 0.02 * one.rows[1].kl);
}

TEST_F(ProfileTest, TheContextIsStoredOnceItsQualityIsKnown) {
  ProfileOptions options;
  options.methods = {"keydiff", "int8"};
  options.keeps = {0.25};
  const std::vector<std::string> questions = {"what is it?"};
  AskedContext asked = ask(*bench_.tokenizer, text_, questions).value();
  auto profiling = ContextProfiling::begin(*bench_.engine, std::move(asked), 1, options).value();
  while (profiling.step({}).value()) EXPECT_FALSE(bench_.cache->stores_any());
  EXPECT_TRUE(bench_.cache->stores_any());
  const auto qualities = bench_.cache->metadata_store()->qualities(profiling.profile().run);
  ASSERT_TRUE(qualities);
  EXPECT_EQ(qualities->size(), 2u);
  bench_.cache->drain(bench_.model->executor());
  const auto& stats = bench_.cache->store().stats();
  EXPECT_GT(stats.tiers[0].bytes, 0u);
}

TEST_F(ProfileTest, EveryScorerIsMeasuredOnOneComputation) {
  ProfileOptions options;
  for (const std::string_view name : scorer_names()) {
    if (!make_scorer(name).value()->needs().calibration) options.methods.emplace_back(name);
  }
  options.keeps = {0.5};
  options.answer_tokens = 4;
  const ContextProfile one = profile(options, {"what is it?"});
  ASSERT_EQ(one.rows.size(), options.methods.size() + 1);
  EXPECT_EQ(one.rows.front().agreement, 1);
}

TEST_F(ProfileTest, PoolPagesAreGivenBack) {
  ProfileOptions options;
  options.methods = {"knorm", "int8"};
  profile(options, {"what is it?", "who?", "how?"});
  bench_.cache->drain(bench_.model->executor());
  EXPECT_TRUE(bench_.cache->evict_until_free(bench_.pool->blocks_total())) << "nothing but the prefix tree held pages";
  EXPECT_TRUE(bench_.cache->check_integrity());
}

// Room for the context and little more: configurations are asked one by one instead of together.
TEST_F(ProfileTest, ASmallPoolGivesTheSameAnswers) {
  ProfileOptions options;
  options.methods = {"knorm"};
  options.keeps = {0.75, 0.5, 0.25, 0.1};
  const ContextProfile roomy = profile(options, {"what is it?"});
  testing::EngineBench small;
  const PageShape shape = bench_.model->page_shape();
  small.open(bench_.folder.path() / "tiny.gguf", std::make_unique<ByteTokenizer>(), 1,
             (2 * shape.pages_for(roomy.tokens) + 40) * shape.block_bytes());
  const auto tight = profile_context(*small.engine, text_, {"what is it?"}, options);
  ASSERT_TRUE(tight) << tight.error().message;
  for (std::size_t i = 0; i < roomy.rows.size(); ++i) {
    EXPECT_EQ(tight->rows[i].agreement, roomy.rows[i].agreement) << i;
    EXPECT_NEAR(tight->rows[i].kl, roomy.rows[i].kl, 1e-4 + 0.02 * roomy.rows[i].kl) << i;
  }
}

// All configurations at once would need its pages.
TEST_F(ProfileTest, WhatRequestsLeftInThePoolStays) {
  ProfileOptions options;
  options.methods = {"knorm"};
  options.keeps = {0.75, 0.6, 0.5, 0.4};
  const PageShape shape = bench_.model->page_shape();
  testing::EngineBench small;
  small.open(bench_.folder.path() / "tiny.gguf", std::make_unique<ByteTokenizer>(), 1,
             5 * shape.pages_for(600) * shape.block_bytes());
  const std::vector<Token> left = testing::random_tokens(1400, 256, 1);
  {
    Sequence sequence(*small.pool);
    ASSERT_TRUE(sequence.append(1400));
    small.cache->insert_prefix(left, sequence);
  }
  const std::uint32_t kept = small.cache->pool_prefix(left);
  ASSERT_GT(kept, 1300u);
  const auto profile = profile_context(*small.engine, text_, {"what is it?", "who?", "how?", "why?"}, options);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->rows.size(), 5u);
  EXPECT_EQ(small.cache->pool_prefix(left), kept);
}

TEST_F(ProfileTest, HeldOutQuestionsAreMeasuredButNotRecorded) {
  ProfileOptions options;
  options.methods = {"int8"};
  options.held_out = {"and then?", "where?"};
  const ContextProfile result = profile(options, {"what is it?"});
  EXPECT_EQ(result.questions, (std::vector<std::string>{"what is it?"}));
  for (const ProfileRow& row : result.rows) {
    EXPECT_EQ(row.questions, 1u);
    ASSERT_EQ(row.held_out.size(), 2u);
  }
  EXPECT_EQ(result.rows.front().held_out[1].agreement, 1);
  EXPECT_EQ(bench_.cache->metadata_store()->questions(result.run).value().size(), 1u);
}

// A random model writes no question: the generic ones stand in, are said to, and are found again the next time.
TEST_F(ProfileTest, WithoutQuestionsSomeAreFound) {
  ProfileOptions options;
  options.methods = {"int8"};
  options.questions_max = 2;
  const ContextProfile written = profile(options, {});
  EXPECT_EQ(written.questions.size(), 2u);
  EXPECT_EQ(written.questions_by_model, 0u);
  const ContextProfile again = profile(options, {});
  EXPECT_EQ(std::set(again.questions.begin(), again.questions.end()),
            std::set(written.questions.begin(), written.questions.end()));
}

TEST_F(ProfileTest, CanBeStoppedAndRefusesUnknownMethods) {
  ProfileOptions options;
  options.methods = {"int8"};
  options.stop = [] { return true; };
  const auto stopped = profile_context(*bench_.engine, text_, {"what?"}, options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  options.stop = {};
  options.methods = {"no such"};
  const auto unknown = profile_context(*bench_.engine, text_, {"what?"}, options);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
}

// Once all is measured, there is nothing else to do meanwhile.
TEST_F(ProfileTest, SaysWhereAnotherProcessLetsNothingBeRecorded) {
  bench_.cache->metadata_store()->wait_at_most(1);
  const auto other = SqlDatabase::open(bench_.folder.path() / "catalogue.sqlite", 1000).value();
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE"));
  ProfileOptions options;
  options.methods = {"knorm", "int8"};
  options.keeps = {0.5};
  std::size_t measured = 0, asked = 0;
  options.stop = [&] { return measured == 3 && ++asked > 1000; };  // it tries for ever
  const auto progress = [&](std::size_t done, std::size_t) { measured = done; };
  const auto refused = profile_context(*bench_.engine, text_, {"what?"}, options, progress);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy) << refused.error().message;
  EXPECT_EQ(measured, 3u);
  ASSERT_TRUE(other.execute("COMMIT"));
  EXPECT_TRUE(profile_context(*bench_.engine, text_, {"what?"}, options));
}

// On a trained model more is better: every scorer, also `random`, at three quarters against a tenth.
TEST(ProfileRealModel, KeepingMoreAgreesMore) {
  const auto path = testing::real_model("smollm2-135m");
  if (path.empty()) GTEST_SKIP() << "no smollm2-135m.gguf below SHALE_MODEL_DIR";
  testing::EngineBench bench;
  bench.open_real(path);
  const std::string text =
      "Shale is a sedimentary rock that forms from mud: clay minerals and tiny fragments of quartz and calcite. It "
      "splits into thin layers, which is called fissility. Black shale contains organic matter and was laid down in "
      "water without oxygen.\n\nThe Burgess Shale in Canada was discovered by Charles Walcott in 1909. It is famous "
      "for "
      "the exceptional preservation of the soft parts of its fossils, which are about 508 million years old. Among "
      "them are Opabinia with its five eyes, Anomalocaris, a hunter of a metre's length, and Marrella, the most common "
      "of all.\n\nSlate forms from shale under heat and pressure. It is used for roofs, because it splits into plates "
      "that keep out water for a hundred years.";
  ProfileOptions options;
  options.methods = {"random", "int8"};
  options.keeps = {0.75, 0.1};
  const auto profile = profile_context(*bench.engine, text,
                                       {"Who discovered the Burgess Shale, and when?", "What is slate used for?",
                                        "What does black shale contain?", "How many eyes did Opabinia have?"},
                                       options);
  ASSERT_TRUE(profile) << profile.error().message;
  std::map<std::string, ProfileRow> rows;
  for (const ProfileRow& row : profile->rows) rows[row.method.text() + "@" + std::to_string(row.keep)] = row;
  EXPECT_EQ(profile->rows.front().agreement, 1);
  EXPECT_LT(profile->rows.front().kl, 1e-4);
  EXPECT_GT(rows["random@0.750000"].agreement, rows["random@0.100000"].agreement);
  EXPECT_LT(rows["random@0.750000"].kl, rows["random@0.100000"].kl);
  EXPECT_GT(rows["int8@1.000000"].agreement, 0.9);
}

}  // namespace
}  // namespace shale
