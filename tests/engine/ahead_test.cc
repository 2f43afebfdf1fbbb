// Steps that are computed while a load brings the layers in front of them.
#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"
#include "support/faulty_tier.h"
#include "support/model_wrapper.h"

namespace shale {
namespace {

using testing::LoadingTest;

// Counts the tokens of all steps that are begun.
class CountingModel final : public testing::ModelWrapper {
 public:
  CountingModel(Model& model, VirtualClock& clock) : ModelWrapper(model), clock_(clock) {}

  Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch, StepHooks* hooks) override {
    for (const StepSequence& each : batch) begun += each.tokens.size();
    clock_.advance(begin_s);
    return ModelWrapper::begin(batch, hooks);
  }
  Result<std::optional<std::span<const float>>> resume(StepHooks* hooks) override {
    ++resumed;
    return ModelWrapper::resume(hooks);
  }

  std::size_t begun = 0, resumed = 0;
  double begin_s = 0;  // that beginning a step takes

 private:
  VirtualClock& clock_;
};

// One layer after the other comes, and the last when the load has ended: each is a read of its own.
class AheadTest : public LoadingTest {
 protected:
  AheadTest() : counting_(*model_, time_) {
    const testing::Faults faults{.fail_read = [this](std::uint64_t) { return goes_wrong(fails_); },
                                 .corrupt_read = [this](std::uint64_t) { return goes_wrong(corrupted_); }};
    auto tier = std::make_unique<testing::FaultyTier>(make_memory_tier(tier_bytes_, time_), faults, time_);
    open_over(make_throttled_tier(std::move(tier), parse_throttle("10MB/s,1ms").value(), time_), 256);
    engine_ = std::make_unique<Engine>(EngineOptions{.chunk_tokens = 128}, counting_, tokenizer_, *cache_, time_);
    computed_ = compute(request_);
  }

  ~AheadTest() override { engine_.reset(); }  // it uses the model

  // Its document lies on the tier alone then.
  Response compute(const Request& request) {
    Response response = engine_->run(request);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    counting_.begun = counting_.resumed = 0;
    return response;
  }

  // A step of it is begun, and waits for layers.
  RequestId begin() {
    const RequestId id = engine_->submit(request_).value();
    while (counting_.begun == 0) EXPECT_TRUE(engine_->run_once());
    EXPECT_EQ(engine_->loading(), 1u);
    return id;
  }

  static bool goes_wrong(std::uint64_t& read) { return read > 0 && --read == 0; }

  std::uint64_t fails_ = 0, corrupted_ = 0;  // that many reads from now on: the read that goes wrong; 0: none
  CountingModel counting_;
  const Request request_ = ask(1, 1500, 1);
  Response computed_;
};

TEST_F(AheadTest, WhatIsComputedAheadOfALoadIsNotComputedAgain) {
  const Response loaded = engine_->run(request_);
  EXPECT_EQ(loaded.tokens, computed_.tokens);
  EXPECT_GE(loaded.cached.total(), 1488u);
  EXPECT_GT(counting_.resumed, 0u) << "it began before the load had ended";
  EXPECT_EQ(counting_.begun, loaded.prompt_tokens - loaded.cached.total() + loaded.tokens.size() - 1);
}

TEST_F(AheadTest, NothingIsKeptOfOneThatIsCancelled) {
  engine_->cancel(begin());
  ASSERT_EQ(engine_->finished().size(), 1u);
  EXPECT_EQ(cache_->pool_prefix(request_.spans[0].tokens, ""), 0u) << "most of it has not come";
  EXPECT_EQ(engine_->run(request_).tokens, computed_.tokens);
}

TEST_F(AheadTest, ItGoesOnWhereAnotherIsCancelled) {
  const RequestId ahead = begin();
  engine_->cancel(engine_->submit(generate(5, 40, 4)).value());
  std::vector<Response> finished = engine_->finished();
  ASSERT_EQ(finished.size(), 1u);
  while (engine_->run_once()) continue;
  finished = engine_->finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].id, ahead);
  EXPECT_EQ(finished[0].tokens, computed_.tokens);
  EXPECT_EQ(counting_.begun, finished[0].computed_tokens() + finished[0].tokens.size() - 1) << "nothing twice";
}

// Where single pages alone are free, nothing is computed ahead: what is loaded is kept for others block by block.
TEST_F(AheadTest, WhatIsLoadedStaysInBlocks) {
  Request request = request_;
  request.policy.method = Method::parse("int8").value();
  const Response computed = engine_->run(request);
  ASSERT_FALSE(computed.error);
  drain();
  ASSERT_TRUE(cache_->evict_until_free(pool_->blocks_total()));

  const std::uint32_t each = pool_->shape().pages_per_block(), block = pool_->shape().block_size;
  std::vector<PageId> pages;
  for (std::uint32_t i = 0; i < 20 * each; ++i) pages.push_back(pool_->allocate_page().value());
  for (std::uint32_t i = 0; i < 20 * each; ++i) {
    if (i % each != 0) pool_->release_page(pages[i]);
  }
  Sequence others(*pool_);
  ASSERT_TRUE(others.append((pool_->blocks_free() - 1488 / block) * block));
  const Response loaded = engine_->run(request);
  EXPECT_EQ(loaded.cached.from("memory"), 1488u);
  EXPECT_EQ(loaded.tokens, computed.tokens);

  Sequence kept(*pool_);
  EXPECT_EQ(cache_->retrieve(request.spans[0].tokens, request.policy, kept, {}).tokens(), 1488u);
  EXPECT_FALSE(kept.ragged());
  for (std::uint32_t i = 0; i < 20 * each; i += each) pool_->release_page(pages[i]);
}

// The engine learns of it between two steps, or the step itself where all that is left comes while it computes.
TEST_F(AheadTest, WhatIsDamagedWhileItIsComputedAheadIsComputedAgain) {
  struct Case {
    std::uint64_t* wrong;
    std::uint64_t read;  // of three
    double begin_s;
  };
  std::uint32_t document = 1;
  for (const Case& each : {Case{&corrupted_, 2, 0}, {&corrupted_, 2, 1}, {&corrupted_, 3, 1}, {&fails_, 2, 1}}) {
    const Request request = ask(++document, 1500, 1);
    const Response computed = compute(request);
    Sequence elsewhere(*pool_);  // so that no page holds by chance what it held before
    ASSERT_TRUE(elsewhere.append(48));
    *each.wrong = each.read;
    counting_.begin_s = each.begin_s;
    const Response answer = engine_->run(request);
    counting_.begin_s = 0;
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_EQ(answer.tokens, computed.tokens);
    EXPECT_LT(answer.cached.total(), 1488u);
    EXPECT_EQ(engine_->stats().retried, document - 1);
    EXPECT_EQ(cache_->stats().failed_loads, document - 1);
    EXPECT_TRUE(each.begin_s > 0 || counting_.resumed > 0) << "it waited for layers";
    elsewhere.clear();
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
  }
}

}  // namespace
}  // namespace shale
