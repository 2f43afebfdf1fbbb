// What coding alone does to attention, beside what it does to answers.
#include "cache/near_lossless.h"

#include <gtest/gtest.h>

#include "profile/exact_context.h"
#include "profile/prior.h"
#include "profile/prior_texts.h"
#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

// One a quantizer.
std::vector<double> errors_of(testing::EngineBench& bench, std::span<const Token> tokens,
                              std::initializer_list<const char*> quantizers) {
  ScorerNeeds needs;
  needs.last_queries = 4;
  const ExactContext context = exact_context(*bench.engine, tokens, needs, {}).value();
  std::vector<double> errors;
  for (const char* name : quantizers) {
    const auto made = make_quantizer(name).value();
    errors.push_back(
        coding_error(context.sequence, 0, context.sequence.length(), context.run.observations, *made).value());
  }
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

TEST(NearLossless, WithoutQueriesNothingIsKnown) {
  testing::EngineBench bench;
  bench.open_tiny();
  const std::vector<Token> tokens = bench.tokenizer->tokenize(testing::sentences(300), false);
  const ExactContext context = exact_context(*bench.engine, tokens, {}, {}).value();
  const auto int8 = make_quantizer("int8").value();
  EXPECT_FALSE(coding_error(context.sequence, 0, context.sequence.length(), {}, *int8));
}

TEST(NearLossless, WhatRequestsStoreIsMeasuredWhileNoPriorIsKnown) {
  testing::EngineBench bench;
  bench.open_tiny();
  const std::vector<Token> tokens = bench.tokenizer->tokenize(testing::sentences(600), false);
  Request request;
  request.segments = {{tokens, true, "doc"}, {bench.tokenizer->tokenize("what?", false), false, {}}};
  request.max_tokens = 2;
  ASSERT_FALSE(bench.engine->run(std::move(request)).error);
  const Hash128 run = bench.cache->run_of(tokens);
  const Catalogue& catalogue = *bench.cache->catalogue();
  EXPECT_EQ(catalogue.kind(run), kind_of(testing::sentences(600)));
  const auto known = catalogue.quality_for(run, Method::parse("int8").value(), 1);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->source, QualitySource::kBound);
  EXPECT_GT(known->expected, 1 - kNearLossless);
  EXPECT_FALSE(catalogue.quality_for(run, Method::parse("knorm").value(), 0.75)) << "dropping tokens is no coding";
}

// Of eight bits answers cannot tell; of two they can.
TEST(NearLosslessRealModel, TellsBitsThatAnswersDoNotMissFromThoseThatTheyDo) {
  const auto path = testing::real_model("smollm2-135m");
  if (path.empty()) GTEST_SKIP() << "no smollm2-135m.gguf below SHALE_MODEL_DIR";
  testing::EngineBench bench;
  bench.open(path, Tokenizer::load(path).value(), 0, std::size_t{256} << 20);
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
