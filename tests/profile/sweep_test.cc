#include "profile/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "profile/context_signals.h"
#include "profile/profile.h"
#include "support/engine_bench.h"

namespace shale {
namespace {

class SweepTest : public ::testing::Test {
 protected:
  void SetUp() override { open(std::size_t{64} << 20); }

  void open(std::size_t pool_bytes) {
    bench_.open_tiny(pool_bytes);
    text_ = testing::sentences(300);
  }

  static SweepConfiguration configuration(std::string_view method, double keep = 1, bool generate = false) {
    return {.method = Method::parse(method).value(), .keep = keep, .generate = generate};
  }

  Result<ContextSweep> sweep(std::vector<SweepConfiguration> configurations, bool question_seen = false) {
    SweepOptions options;
    options.configurations = std::move(configurations);
    options.answer_tokens = 8;
    options.question_seen = question_seen;
    options.window = 16;
    return sweep_context(*bench_.engine, text_, questions_, options);
  }

  testing::EngineBench bench_;
  std::string text_;
  std::vector<std::string> questions_ = {"what is it?", "how long?"};
};

TEST_F(SweepTest, KeepingEverythingIsTheFullCache) {
  const auto result = sweep({configuration("full", 1, true), configuration("knorm", 1, true)});
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->rows.size(), 4u);
  ASSERT_EQ(result->answers.size(), 2u);
  for (const SweepRow& row : result->rows) {
    EXPECT_EQ(row.forced.agreement, 1);
    EXPECT_NEAR(row.forced.kl, 0, 1e-9);
    EXPECT_EQ(row.answer, result->answers[row.question]);
    const PageShape& shape = bench_.pool->shape();
    const auto tokens = static_cast<std::uint32_t>(result->full_bytes / shape.token_bytes());
    const bool ranked = !row.configuration.method.is_full();
    EXPECT_EQ(row.bytes, result->full_bytes + (ranked ? TierMap::bytes_of(shape.pages_per_block(), tokens) : 0));
  }
}

// Groups that share a scale are those of extents, whose bytes a profile counts: the two agree to the last bit.
TEST_F(SweepTest, MeasuresWhatAStoreKeeps) {
  for (const std::string method :
       {"full", "kivi2", "knorm", "knorm+kivi2", "pyramid:snapkv+kivi4", "adakv:knorm+layered", "knorm+int8/kivi2"}) {
    SCOPED_TRACE(method);
    ProfileOptions profiling;
    profiling.methods = {method};
    profiling.full = method == "full";
    profiling.keeps = {0.25};
    profiling.answer_tokens = 8;
    const auto profile = profile_context(*bench_.engine, text_, questions_, profiling);
    ASSERT_TRUE(profile) << profile.error().message;
    const ProfileRow& stored = profile->rows.at(0);
    SweepOptions options;
    options.configurations = {configuration(method, stored.keep)};
    options.answer_tokens = 8;
    const auto result = sweep_context(*bench_.engine, text_, questions_, options);
    ASSERT_TRUE(result) << result.error().message;
    double agreement = 0, kl = 0;
    for (const SweepRow& row : result->rows) {
      EXPECT_EQ(row.bytes, stored.bytes);
      agreement += row.forced.agreement / static_cast<double>(questions_.size());
      kl += row.forced.kl / static_cast<double>(questions_.size());
    }
    EXPECT_DOUBLE_EQ(agreement, stored.agreement);
    EXPECT_DOUBLE_EQ(kl, stored.kl);
  }
}

TEST_F(SweepTest, KeepsAreMeasuredTogetherAsTheyAreAlone) {
  std::vector<SweepConfiguration> configurations;
  std::vector<SweepRow> alone;
  for (const std::string method : {"knorm+kivi2", "keydiff+kivi2"}) {
    for (const double keep : {1.0, 0.5, 0.4, 0.25}) {
      configurations.push_back(configuration(method, keep));
      const auto one = sweep({configurations.back()});
      ASSERT_TRUE(one) << one.error().message;
      alone.insert(alone.end(), one->rows.begin(), one->rows.end());
    }
  }
  const auto together = sweep(configurations);
  ASSERT_TRUE(together) << together.error().message;
  ASSERT_EQ(together->rows.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together->rows[i].bytes, alone[i].bytes) << i;
    EXPECT_DOUBLE_EQ(together->rows[i].forced.kl, alone[i].forced.kl) << i;
  }
}

TEST_F(SweepTest, KeepsBetweenThoseOfAStoreAreKeptAsTheyAre) {
  std::uint64_t last = 0;
  for (const double keep : {0.05, 0.1, 0.2, 0.25, 0.4, 0.6, 0.75, 0.8, 0.95, 1.0}) {
    const auto result = sweep({configuration("knorm", keep)});
    ASSERT_TRUE(result) << result.error().message;
    const std::uint64_t bytes = result->rows[0].bytes;
    EXPECT_NEAR(static_cast<double>(bytes) / static_cast<double>(result->full_bytes), keep, 0.01);
    EXPECT_GT(bytes, last);
    last = bytes;
  }
}

TEST_F(SweepTest, EveryScorerAndBudgetIsMeasuredAndTakesItsShare) {
  std::vector<SweepConfiguration> configurations;
  for (const std::string_view name : scorer_names()) {
    if (name != "triattention") configurations.push_back(configuration(name, 0.25));
  }
  configurations.push_back(configuration("adakv:knorm", 0.25));
  configurations.push_back(configuration("pyramid:knorm", 0.25));
  configurations.push_back(configuration("knorm+int8", 0.25));
  configurations.push_back(configuration("kivi4"));
  for (const bool seen : {false, true}) {
    const auto result = sweep(configurations, seen);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->rows.size(), configurations.size() * questions_.size());
    std::set<std::pair<std::string, std::size_t>> rows;
    for (const SweepRow& row : result->rows) {
      const std::string name = row.configuration.method.text();
      rows.insert({name, row.question});
      EXPECT_GE(row.forced.agreement, 0) << name;
      EXPECT_TRUE(std::isfinite(row.forced.kl)) << name;
      EXPECT_FALSE(row.answer) << name;
      const double share = static_cast<double>(row.bytes) / static_cast<double>(result->full_bytes);
      EXPECT_NEAR(share, name == "knorm+int8" ? 0.14 : name == "kivi4" ? 0.31 : 0.25, 0.05) << name;
    }
    EXPECT_EQ(rows.size(), result->rows.size());
  }
}

// Extents keep such layers whole, and so does what is measured.
TEST_F(SweepTest, LayersWithAWindowKeepEveryToken) {
  const auto path = bench_.folder.path() / "gemma3.gguf";
  testing::write_tiny_model({.architecture = "gemma3"}, path);
  bench_.engine.reset();
  bench_.cache.reset();
  bench_.open(path, std::make_unique<testing::ByteTokenizer>(), 1, std::size_t{64} << 20);
  for (const std::string method : {"knorm", "global:knorm"}) {
    const auto result = sweep({configuration(method, 0.25)});
    ASSERT_TRUE(result) << result.error().message;
    const std::vector<std::uint32_t>& windows = bench_.model->info().windows;
    const double windowed = static_cast<double>(std::ranges::count_if(windows, [](auto each) { return each > 0; }));
    const double layers = static_cast<double>(windows.size()), share = (windowed + 0.25 * (layers - windowed)) / layers;
    EXPECT_NEAR(static_cast<double>(result->rows[0].bytes) / static_cast<double>(result->full_bytes), share, 0.03);
  }
}

TEST_F(SweepTest, PredictsWithoutTheQuestions) {
  SweepOptions options;
  options.configurations = {configuration("full"), configuration("kivi2"), configuration("snapkv", 0.9),
                            configuration("snapkv", 0.2), configuration("snapkv+kivi2", 0.2)};
  options.answer_tokens = 8;
  options.predict = true;
  const auto result = sweep_context(*bench_.engine, text_, questions_, options);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->rows.size(), 10u);
  std::map<std::pair<std::string, double>, Predicted> by;
  for (const SweepRow& row : result->rows) {
    ASSERT_TRUE(row.predicted);
    by[{row.configuration.method.text(), row.configuration.keep}] = *row.predicted;
  }
  const Predicted full = by[{"full", 1.0}], coded = by[{"kivi2", 1.0}], most = by[{"snapkv", 0.9}],
                  few = by[{"snapkv", 0.2}], both = by[{"snapkv+kivi2", 0.2}];
  EXPECT_NEAR(full.mass, 1, 1e-4);
  EXPECT_EQ(full.error, 0);
  EXPECT_EQ(full.probe, 1);
  EXPECT_NEAR(coded.mass, 1, 1e-4);
  EXPECT_GT(coded.error, 0);
  EXPECT_LT(few.mass, most.mass);
  EXPECT_GT(few.error, most.error);
  EXPECT_GT(both.error, few.error);
  EXPECT_EQ(both.mass, few.mass);
  EXPECT_GT(result->measured_s, 0);
  EXPECT_GT(result->signals_s, 0);
  EXPECT_GT(result->probe_s, 0);
  const auto unpredicted = sweep({configuration("kivi2")});
  ASSERT_TRUE(unpredicted);
  for (const SweepRow& row : unpredicted->rows) EXPECT_FALSE(row.predicted);
}

TEST_F(SweepTest, PredictsAtTheModelsScale) {
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, {}, testing::model_of_another_scale());
  SweepOptions options;
  options.configurations = {configuration("kivi2")};
  options.answer_tokens = 2;
  options.predict = true;
  const auto result = sweep_context(*bench.engine, text_, questions_, options);
  ASSERT_TRUE(result) << result.error().message;
  AskedContext context = ask(*bench.tokenizer, text_, {}).value();
  ASSERT_TRUE(keep_whole_blocks(context, bench.cache->block_tokens()));
  const ExactContext exact = exact_context(*bench.engine, context.tokens, {.last_queries = kSignalQueries}, {}).value();
  SignalConfiguration all{
      .tiers = TierMap(bench.pool->shape().pages_per_block(), static_cast<std::uint32_t>(context.tokens.size())),
      .quantizers = {}};
  all.quantizers.push_back(make_quantizer("kivi2").value());
  const auto error_at = [&](float scale) {
    return context_signals(exact, exact.sequence.length(), {&all, 1}, scale, bench.model->executor())[0].error;
  };
  const double predicted = result->rows.at(0).predicted.value().error;
  EXPECT_DOUBLE_EQ(predicted, error_at(bench.model->info().attention_scale));
  EXPECT_NE(predicted, error_at(0)) << "the usual one";
}

TEST_F(SweepTest, LongContextsLoseTheirMiddle) {
  const auto whole = sweep({configuration("int8")});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->tokens_cut, 0u);
  SweepOptions options;
  options.configurations = {configuration("int8")};
  options.context_tokens_max = 101;
  const auto cut = sweep_context(*bench_.engine, text_, questions_, options);
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->tokens, 101u);
  EXPECT_EQ(cut->tokens + cut->tokens_cut, whole->tokens);
}

TEST_F(SweepTest, GivesAllPagesBack) {
  const auto free_after = [&] {
    static_cast<void>(bench_.cache->evict_until_free(bench_.pool->blocks_total()));
    return bench_.pool->blocks_free();
  };
  ASSERT_TRUE(sweep({configuration("knorm", 0.5), configuration("adakv:snapkv+kivi4", 0.1, true)}));
  bench_.cache->drain(bench_.model->executor());
  EXPECT_EQ(free_after(), bench_.pool->blocks_total());
  EXPECT_TRUE(bench_.pool->check_integrity());
}

TEST_F(SweepTest, WhatCannotBeMeasuredIsNamed) {
  for (const std::string method : {"nothing", "knorm+nothing", "none:knorm", "triattention", "knorm+int8/nothing"}) {
    const auto result = sweep({configuration(method, 0.5)});
    ASSERT_FALSE(result) << method;
    EXPECT_FALSE(result.error().message.empty());
  }
  questions_.clear();
  EXPECT_EQ(sweep({configuration("int8")}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SweepTest, CanBeStopped) {
  SweepOptions options;
  options.configurations = {configuration("int8")};
  options.stop = [] { return true; };
  EXPECT_EQ(sweep_context(*bench_.engine, text_, questions_, options).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace shale
