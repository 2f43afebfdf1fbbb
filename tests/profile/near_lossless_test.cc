// What coding alone does to attention, beside what it does to answers.
#include "cache/near_lossless.h"

#include <gtest/gtest.h>

#include <cmath>

#include "profile/exact_context.h"
#include "profile/prior.h"
#include "profile/prior_texts.h"
#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

// One a quantizer.
std::vector<double> errors_of(testing::EngineBench& bench, std::span<const Token> tokens,
                              std::initializer_list<const char*> quantizers, float attention_scale = 0) {
  ScorerNeeds needs;
  needs.last_queries = 4;
  const ExactContext context = exact_context(*bench.engine, tokens, needs, {}).value();
  std::vector<double> errors;
  std::vector<std::unique_ptr<Quantizer>> made;
  for (const char* name : quantizers) made.push_back(make_quantizer(name).value());
  const Sequence& sequence = context.sequence;
  const PageShape& shape = sequence.pool().shape();
  const std::uint32_t whole_blocks = sequence.length() - sequence.length() % shape.block_size;
  auto measured =
      CodingErrors::start(shape, 0, whole_blocks, context.run.statistics, attention_scale, std::move(made)).value();
  while (measured.step(sequence)) {
  }
  for (std::size_t i = 0; i < quantizers.size(); ++i) errors.push_back(measured.error(i));
  return errors;
}

TEST(NearLossless, ErrorGrowsWithFewerBits) {
  testing::EngineBench bench;
  bench.open_tiny();
  const std::vector<Token> tokens = bench.tokenizer->tokenize(testing::sentences(600), false);
  const std::vector<double> errors = errors_of(bench, tokens, {"none", "int8", "kivi4", "kivi2"});
  EXPECT_LT(errors[0], 1e-6);
  EXPECT_LT(errors[0], errors[1]);
  EXPECT_LT(errors[1], errors[2]);
  EXPECT_LT(errors[2], errors[3]);
}

TEST(NearLossless, MeasuresAtTheModelsScale) {
  testing::EngineBench bench;
  bench.open_tiny();
  const std::vector<Token> tokens = bench.tokenizer->tokenize(testing::sentences(600), false);
  const float usual = 1 / std::sqrt(static_cast<float>(bench.pool->shape().head_dim));
  EXPECT_EQ(errors_of(bench, tokens, {"kivi2"}, usual), errors_of(bench, tokens, {"kivi2"}));
  EXPECT_NE(errors_of(bench, tokens, {"kivi2"}, usual / 8), errors_of(bench, tokens, {"kivi2"}));
}

TEST(NearLossless, WithoutQueriesNothingIsKnown) {
  testing::EngineBench bench;
  bench.open_tiny();
  const std::vector<Token> tokens = bench.tokenizer->tokenize(testing::sentences(300), false);
  const ExactContext context = exact_context(*bench.engine, tokens, {}, {}).value();
  EXPECT_FALSE(CodingErrors::start(context.sequence.pool().shape(), 0, context.sequence.length(), {}, 0, {}));
}

// A request about a document, whose run is stored. Returns its name.
Hash128 ask_about(testing::EngineBench& bench, const std::string& document) {
  const std::vector<Token> tokens = bench.tokenizer->tokenize(document, false);
  Request request;
  request.spans = {{tokens, true, "doc"}, {bench.tokenizer->tokenize("what?", false), false, {}}};
  request.max_tokens = 2;
  EXPECT_FALSE(bench.engine->run(std::move(request)).error);
  return bench.cache->run_of(tokens);
}

Hash128 ask_and_store(testing::EngineBench& bench, const std::string& document) {
  const Hash128 run = ask_about(bench, document);
  bench.cache->drain(bench.model->executor());
  return run;
}

// Its pages can be had back at any time, so nothing hurries.
TEST(NearLossless, WhatIsMerelyLookedAtIsNotWaitedFor) {
  testing::EngineBench bench;
  bench.open_tiny();
  ask_about(bench, testing::sentences(600));
  while (bench.cache->blocks_waiting_to_be_encoded() > 0) bench.cache->work(bench.model->executor());
  EXPECT_GT(bench.cache->blocks_waiting_to_be_stored(), 0u);
  bench.cache->drain(bench.model->executor());
  EXPECT_EQ(bench.cache->blocks_waiting_to_be_stored(), 0u);
}

TEST(NearLossless, WhatRequestsStoreIsMeasuredWhileNoPriorIsKnown) {
  testing::EngineBench bench;
  bench.open_tiny();
  const Hash128 run = ask_and_store(bench, testing::sentences(600));
  const MetadataStore& metadata_store = *bench.cache->metadata_store();
  EXPECT_EQ(metadata_store.kind(run), kind_of(testing::sentences(600)));
  const auto known = metadata_store.quality_for(run, Method::parse("int8").value(), 1);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->source, QualitySource::kBound);
  EXPECT_GT(known->expected, 1 - kNearLossless);
  EXPECT_FALSE(metadata_store.quality_for(run, Method::parse("knorm").value(), 0.75)) << "dropping tokens is no coding";
}

TEST(NearLossless, WhatRequestsStoreIsMeasuredAtTheModelsScale) {
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, {}, testing::model_of_another_scale());
  const std::string document = testing::sentences(600).substr(0, 576);  // whole blocks
  const Hash128 run = ask_and_store(bench, document);
  const auto known = bench.cache->metadata_store()->quality_for(run, Method::parse("int8").value(), 1);
  ASSERT_TRUE(known);
  const auto error_at = [&](float scale) {
    return errors_of(bench, bench.tokenizer->tokenize(document, false), {"int8"}, scale)[0];
  };
  EXPECT_EQ(known->expected, 1 - error_at(bench.model->info().attention_scale));
  EXPECT_NE(known->expected, 1 - error_at(0)) << "the usual one";
}

TEST(NearLossless, NothingIsMeasuredForPlannersThatDoNotAsk) {
  testing::EngineBench bench;
  CacheOptions options;
  options.planner = "lru";
  bench.open_tiny(std::size_t{64} << 20, options);
  EXPECT_FALSE(bench.cache->weighs_quality());
  EXPECT_EQ(bench.cache->needs().last_queries, 0) << "nothing is watched while prompts are computed";
  const Hash128 run = ask_and_store(bench, testing::sentences(600));
  EXPECT_FALSE(bench.cache->metadata_store()->quality_for(run, Method::parse("int8").value(), 1));
}

// Of eight bits answers cannot tell; of two they can.
TEST(NearLosslessRealModel, TellsBitsThatAnswersDoNotMissFromThoseThatTheyDo) {
  const auto path = testing::real_model("smollm2-135m");
  if (path.empty()) GTEST_SKIP() << "no smollm2-135m.gguf below SHALE_MODEL_DIR";
  testing::EngineBench bench;
  bench.open_real(path);
  for (const std::size_t i : {0, 1, 3}) {
    const AskedContext text = prior_text(*bench.tokenizer, i).value();
    const std::vector<double> errors = errors_of(bench, text.tokens, {"int8", "kivi4", "kivi2"});
    EXPECT_LT(errors[0], kNearLossless) << prior_texts()[i].name;
    EXPECT_GT(errors[1], kNearLossless) << prior_texts()[i].name;
    EXPECT_GT(errors[2], errors[1]) << prior_texts()[i].name;
  }
}

}  // namespace
}  // namespace shale
