// What is recorded of how long computing a stored span took.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"
#include "support/model_wrapper.h"

namespace shale {
namespace {

using testing::LoadingTest;

constexpr double kTickS = 0.005;  // as is guessed before anything was measured

// Takes so long for each token.
class TickingModel final : public testing::ModelWrapper {
 public:
  TickingModel(Model& model, VirtualClock& time) : ModelWrapper(model), time_(time) {}

  Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch, StepHooks* hooks) override {
    for (const StepSequence& each : batch) time_.advance(kTickS * static_cast<double>(each.tokens.size()));
    return ModelWrapper::begin(batch, hooks);
  }

 private:
  VirtualClock& time_;
};

class ComputingTimeTest : public LoadingTest {
 protected:
  ~ComputingTimeTest() override { engine_.reset(); }  // it uses the model

  // A tier that brings so many tokens a second.
  void open_timed(std::uint64_t tier_bytes, double tokens_per_s, std::uint32_t pool_blocks) {
    engine_.reset();
    cache_.reset();
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    const double token_bytes = static_cast<double>(model_->page_shape().token_bytes());
    const Throttle slow{"slow", 1e-4, tokens_per_s * token_bytes, 1e12};
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_throttled_tier(make_memory_tier(tier_bytes, time_), slow, time_);
    tiers[0].tier->expect({slow.latency_s, slow.read_bytes_per_s, slow.write_bytes_per_s});
    CacheOptions options;
    options.model = model_->info().traits();
    options.chunk_tokens = 64;
    options.methods.clear();  // nothing is read but for requests
    cache_ = Cache::open(std::move(options), {model_->fingerprint(), "tiny"}, *pool_, std::move(tiers),
                         metadata_store(), time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.chunk_tokens = 128, .chunk_step_s = 0}, ticking_, tokenizer_,
                                       *cache_, time_);
  }

  std::unique_ptr<MetadataStore> metadata_store() {
    return MetadataStore::open(folder_.path() / "times.sqlite", model_->fingerprint()).value();
  }

  // As the next process is told.
  double recorded_s(const std::vector<Token>& context) {
    const Hash128 run = cache_->run_of(context);
    engine_.reset();
    cache_.reset();
    return metadata_store()->prefix(run).value().recompute_s;
  }

  TickingModel ticking_{*model_, time_};
};

TEST_F(ComputingTimeTest, WhatCameFromATierDoesNotCount) {
  open_timed(tier_bytes_, 240, 256);
  const Request request = ask(1, 512, 1);
  ASSERT_FALSE(engine_->run(request).error);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  const Response met = engine_->run(request);
  EXPECT_GE(met.cached.from("memory"), 64u);
  EXPECT_LE(met.cached.from("memory"), 448u) << "the rest was computed meanwhile";
  EXPECT_NEAR(recorded_s(request.spans[0].tokens), 512 * kTickS, 1e-3) << "the first time";
}

TEST_F(ComputingTimeTest, WhatIsComputedTwiceCountsOnce) {
  open_timed(4096, 1e6, 35);  // nothing can be spilled
  Request other = generate(5, 100, 150);
  other.ignore_end = true;
  const Request request = ask(1, 400, 1);
  ASSERT_TRUE(engine_->submit(other));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(engine_->run_once());  // so that it is known what decoding takes
  ASSERT_FALSE(engine_->run(request).error);
  EXPECT_EQ(engine_->stats().computed_again, 1u);
  EXPECT_NEAR(recorded_s(request.spans[0].tokens), 400 * kTickS, 0.05);
}

}  // namespace
}  // namespace shale
