#include "runtime/engine_stack.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "support/byte_tokenizer.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

class EngineStackTest : public ::testing::Test {
 protected:
  EngineStackTest() {
    const auto path = folder_.path() / "tiny.gguf";
    testing::write_tiny_model({.tied_head = false}, path);
    model_ = Model::load(path, {.weights = WeightChoice::kFile, .threads = 1}).value();
  }

  std::unique_ptr<EngineStack> open(CacheOptions options) {
    std::vector<StoreTier> tiers;
    tiers.push_back({make_memory_tier(kUnlimited, clock_)});
    const std::uint64_t pool_bytes = 64 * model_->page_shape().block_bytes();
    return EngineStack::open(*model_, tokenizer_, {pool_bytes, std::move(options)}, std::move(tiers), nullptr, clock_)
        .value();
  }

  testing::TemporaryFolder folder_;
  RealClock clock_;
  std::unique_ptr<Model> model_;
  testing::ByteTokenizer tokenizer_;
};

TEST_F(EngineStackTest, WhatComesNextComesFromTheTierOnceThePoolIsEmpty) {
  CacheOptions options;
  options.load_always = true;
  const auto stack = open(std::move(options));
  Request request;
  request.spans = {{testing::random_tokens(64, 256, 1), true, "context"},
                   {testing::random_tokens(9, 256, 2), false, "question"}};
  request.max_tokens = 4;
  request.policy.exact = true;
  const Response first = stack->engine().run(request);
  ASSERT_FALSE(first.error) << first.error->message;
  EXPECT_EQ(first.cached.total(), 0u);
  EXPECT_GE(stack->engine().run(request).cached.from("pool"), 64u);
  stack->empty_pool();
  EXPECT_EQ(stack->pool().blocks_free(), stack->pool().blocks_total());
  const Response again = stack->engine().run(request);
  EXPECT_EQ(again.cached.from("memory"), 64u);
  EXPECT_EQ(again.tokens, first.tokens);
}

TEST_F(EngineStackTest, WhatWaitsToBeStoredIsStoredBeforeThePoolIsEmptied) {
  const auto stack = open({});
  {
    Sequence sequence(stack->pool());
    ASSERT_TRUE(sequence.append(64));
    stack->cache().store({.tokens = testing::random_tokens(64, 256, 1)}, sequence);
  }
  stack->empty_pool();
  EXPECT_EQ(stack->pool().blocks_free(), stack->pool().blocks_total());
  EXPECT_FALSE(stack->cache().stores_any());
}

TEST_F(EngineStackTest, TheCacheKnowsTheModelAndKeepsTheCallersCalibration) {
  const Calibration calibration;
  CacheOptions options;
  options.model.calibration = &calibration;
  options.quick_answers = !model_->has_quick();
  const auto stack = open(std::move(options));
  const CacheOptions& known = stack->cache().options();
  EXPECT_EQ(known.model.ropes.data(), model_->info().ropes.data());
  EXPECT_EQ(known.model.ropes.size(), model_->info().ropes.size());
  EXPECT_EQ(known.model.calibration, &calibration);
  EXPECT_EQ(known.quick_answers, model_->has_quick());
}

}  // namespace
}  // namespace shale
