#include "profile/spare_time.h"

#include <gtest/gtest.h>

#include <utility>

#include "profile/exact_context.h"
#include "profile/quality_watch.h"
#include "support/byte_tokenizer.h"
#include "support/engine_bench.h"
#include "support/faulty_tier.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/timed_model.h"

namespace shale {
namespace {

using testing::random_tokens;

constexpr double kStepS = testing::TimedModel::kStepS, kTokenS = testing::TimedModel::kTokenS;

class SpareTimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_tiny_model({.context = 1 << 15}, folder_.path() / "tiny.gguf");
    model_ = std::make_unique<testing::TimedModel>(
        Model::load(folder_.path() / "tiny.gguf", {.weights = WeightChoice::kFile, .threads = 1}).value(), clock_);
    open();
  }
  void open(std::uint32_t pool_blocks = 1024, testing::Faults faults = {}) {
    engine_.reset();
    cache_.reset();
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    std::vector<StoreTier> tiers;
    tiers.push_back({std::make_unique<testing::FaultyTier>(make_memory_tier(std::uint64_t{64} << 20, clock_),
                                                           std::move(faults), clock_)});
    const Fingerprint fingerprint{model_->fingerprint(), "tiny"};
    CacheOptions options;
    options.model = model_->info().traits();
    cache_ = Cache::open(options, fingerprint, *pool_, std::move(tiers),
                         MetadataStore::open_in_memory(fingerprint.hash).value(), clock_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128}, *model_, tokenizer_,
                                       *cache_, clock_);
  }

  void submit(std::uint32_t seed, std::uint32_t answer_tokens, bool exact = false) {
    Request request;
    request.spans.push_back({.tokens = random_tokens(24, 256, seed), .label = {}});
    request.max_tokens = answer_tokens;
    request.ignore_end = true;
    request.policy.exact = exact;
    ASSERT_TRUE(engine_->submit(std::move(request)));
  }
  bool turn() {
    ++turns_;
    engine_->run_once();
    if (const auto each_turn = each_turn_) each_turn();  // which may set another
    return true;
  }
  // Until all that was submitted decodes.
  void decode() {
    for (int i = 0; i < 50; ++i) turn();
    while (engine_->waiting() > 0) turn();
  }

  // Feeds so many tokens at the pace of spare time; their logits, computed in any company.
  Result<std::vector<float>> measure(std::size_t tokens) {
    SpareTime spare(*engine_, clock_, [this] { return turn(); });
    Sequence sequence(*pool_);
    const std::vector<Token> fed = random_tokens(tokens, 256, 99);
    const Feed one{&sequence, fed};
    std::vector<float> logits;
    const Status status = feed(
        *model_, {&one, 1},
        [&](std::size_t, std::size_t first, std::span<const float> rows) {
          EXPECT_EQ(first, logits.size() / model_->info().vocabulary);
          logits.insert(logits.end(), rows.begin(), rows.end());
        },
        Stop(spare));
    if (!status) return std::unexpected(status.error());
    return logits;
  }

  testing::TemporaryFolder folder_;
  VirtualClock clock_;
  testing::ByteTokenizer tokenizer_;
  std::unique_ptr<testing::TimedModel> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Engine> engine_;
  std::function<void()> each_turn_;
  int turns_ = 0;
};

// 32 tokens take longer than `idle_step_s`.
TEST_F(SpareTimeTest, AloneStepsAreAsLargeAsTheirTimeAllowsAndNothingIsCharged) {
  ASSERT_TRUE(measure(300));
  EXPECT_NEAR(clock_.now_s(), 19 * kStepS + 300 * kTokenS, 1e-9);
  EXPECT_EQ(engine_->stats().guest_tokens, 0u);
  EXPECT_EQ(engine_->stats().guest_seconds, 0);
}

TEST_F(SpareTimeTest, AloneStepsOfAFastModelAreLarge) {
  model_->step_s = 0.001;
  model_->token_s = 0.0001;
  ASSERT_TRUE(measure(300));
  EXPECT_NEAR(clock_.now_s(), 5 * model_->step_s + 300 * model_->token_s, 1e-9);  // of 16, 32, 64, 128 and 60 tokens
}

TEST_F(SpareTimeTest, WhoComesWhileItMeasuresWaitsForALayer) {
  double turned_s = clock_.now_s(), longest_s = 0;
  each_turn_ = [&] { longest_s = std::max(longest_s, clock_.now_s() - std::exchange(turned_s, clock_.now_s())); };
  const std::vector<float> alone = measure(60).value();
  const double layer_s = (kStepS + 16 * kTokenS) / model_->info().layers;
  EXPECT_LE(longest_s, layer_s + engine_->options().idle_slice_s);
  const int steps = std::exchange(model_->begun, 0);
  int submitted = 0;
  turns_ = 0;
  each_turn_ = [&] {  // in the midst of steps of three layers; then it has a step of its own
    if (turns_ % 4 == 2 && submitted < 3) submit(static_cast<std::uint32_t>(submitted++), 1);
  };
  EXPECT_EQ(measure(60).value(), alone) << "what was given up is computed anew";
  EXPECT_EQ(submitted, 3);
  EXPECT_GT(model_->begun, steps + 3) << "something was given up";
}

TEST_F(SpareTimeTest, WhoComesWhileAContextIsComputedWaitsForALayer) {
  double turned_s = clock_.now_s(), longest_s = 0;
  each_turn_ = [&] {
    longest_s = std::max(longest_s, clock_.now_s() - std::exchange(turned_s, clock_.now_s()));
    if (turns_ < 30) return;
    submit(1, 1);
    each_turn_ = nullptr;
  };
  SpareTime spare(*engine_, clock_, [this] { return turn(); });
  const std::vector<Token> context = random_tokens(512, 256, 3);
  const auto exact = exact_context(*engine_, context, {}, {.store = false}, Stop(spare));
  ASSERT_TRUE(exact) << exact.error().message;
  EXPECT_EQ(exact->sequence.length(), 512u);
  EXPECT_LE(longest_s, (kStepS + 16 * kTokenS) / model_->info().layers + engine_->options().idle_slice_s);
  EXPECT_FALSE(each_turn_);
}

// Those who decode by then do not wait for so large a step.
TEST_F(SpareTimeTest, WhatIsGivenUpIsCutAnew) {
  double last_s = 0, longest_s = 0;
  std::uint64_t decoded = 0;
  each_turn_ = [&] {
    if (turns_ == 2) {
      submit(1, 400);
      submit(2, 400);
    }
    if (engine_->stats().decode_tokens == decoded) return;
    decoded = engine_->stats().decode_tokens;
    if (last_s > 0) longest_s = std::max(longest_s, clock_.now_s() - last_s);
    last_s = clock_.now_s();
  };
  ASSERT_TRUE(measure(100));
  EXPECT_GT(decoded, 50u);
  EXPECT_LE(longest_s, 1.25 * (kStepS + 2 * kTokenS));
}

TEST_F(SpareTimeTest, WhoComesWhileAContextIsRepeatedWaitsForAStep) {
  double turned_s = clock_.now_s(), longest_s = 0;
  each_turn_ = [&] { longest_s = std::max(longest_s, clock_.now_s() - std::exchange(turned_s, clock_.now_s())); };
  SpareTime spare(*engine_, clock_, [this] { return turn(); });
  const auto exact = exact_context(*engine_, random_tokens(512, 256, 3), {.repeat_attention = true}, {}, Stop(spare));
  ASSERT_TRUE(exact) << exact.error().message;
  EXPECT_FALSE(exact->run.statistics.repeat_attention.empty());
  EXPECT_LE(longest_s, engine_->options().idle_step_s);
}

TEST_F(SpareTimeTest, GoesOnBesideThoseWhoDecodeWithinItsShare) {
  const std::vector<float> alone = measure(60).value();
  submit(1, 3000);
  submit(2, 3000);
  decode();
  const double begun_s = clock_.now_s();
  const EngineStats before = engine_->stats();
  const std::vector<float> beside = measure(60).value();
  const EngineStats after = engine_->stats();
  EXPECT_EQ(engine_->running(), 2u) << "they decode as before";
  EXPECT_EQ(beside, alone);
  EXPECT_EQ(after.guest_tokens - before.guest_tokens, 60u);
  EXPECT_GT(after.decode_tokens - before.decode_tokens, 50u);
  const double took_s = clock_.now_s() - begun_s, share_s = engine_->options().background_share * took_s;
  const double guests_s = after.guest_seconds - before.guest_seconds;
  EXPECT_LE(guests_s, share_s + 0.002);
  EXPECT_GE(guests_s, share_s / 4) << "and makes use of it";
}

// Those who decode never wait for a step of measuring's own, nor much longer for theirs.
TEST_F(SpareTimeTest, HardlyDelaysATokenOfAnAnswer) {
  submit(1, 400);
  submit(2, 400);
  decode();
  double last_s = clock_.now_s(), longest_s = 0;
  std::uint64_t decoded = engine_->stats().decode_tokens;
  each_turn_ = [&] {
    if (engine_->stats().decode_tokens == decoded) return;
    decoded = engine_->stats().decode_tokens;
    longest_s = std::max(longest_s, clock_.now_s() - last_s);
    last_s = clock_.now_s();
  };
  ASSERT_TRUE(measure(100));
  EXPECT_LE(longest_s, 1.25 * (kStepS + 2 * kTokenS));
}

TEST_F(SpareTimeTest, StopsWhileTheBatchIsFull) {
  for (std::uint32_t i = 0; i < 2; ++i) submit(i, 3000);
  decode();
  std::uint64_t when_full = 0;
  int full = 0;
  each_turn_ = [&] {
    if (engine_->stats().guest_tokens == 20) {
      each_turn_ = nullptr;
      submit(7, 150);
      submit(8, 150);
      submit(9, 150);
      each_turn_ = [&] {
        if (engine_->running() < 4) return;
        if (++full == 1) when_full = engine_->stats().guest_tokens;
        EXPECT_EQ(engine_->stats().guest_tokens, when_full);
      };
    }
  };
  const auto measured = measure(60);
  each_turn_ = nullptr;
  ASSERT_TRUE(measured) << "it goes on when there is a place again";
  EXPECT_GE(full, 150);
  EXPECT_EQ(engine_->stats().guest_tokens, 60u);
  EXPECT_EQ(engine_->running(), 3u) << "and not only when all three are answered";
}

TEST_F(SpareTimeTest, HasStepsOfItsOwnBesideExactAnswersInOtherWeights) {
  const std::vector<float> alone = measure(60).value();
  model_->apart = true;
  submit(1, 3000, true);
  decode();
  const double begun_s = clock_.now_s();
  const EngineStats before = engine_->stats();
  EXPECT_EQ(measure(60).value(), alone);
  const double guests_s = engine_->stats().guest_seconds - before.guest_seconds;
  EXPECT_LE(guests_s, engine_->options().background_share * (clock_.now_s() - begun_s) + 2 * kStepS);
  EXPECT_GT(guests_s, 0);
}

TEST_F(SpareTimeTest, WhatIsWrongWithItEndsNobodysAnswer) {
  submit(1, 3000);
  submit(2, 3000);
  decode();
  SpareTime spare(*engine_, clock_, [this] { return turn(); });
  Sequence sequence(*pool_);
  const std::vector<Token> unknown(4, 99'999);
  const Feed one{&sequence, unknown};
  const Status status = feed(*model_, {&one, 1}, {}, Stop(spare));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->running(), 2u);
  const std::uint64_t decoded = engine_->stats().decode_tokens;
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_EQ(engine_->stats().decode_tokens, decoded + 20);
}

// They came between its look at the engine and its step.
TEST_F(SpareTimeTest, AStepThatNobodyHasBegunIsCutAnewForThoseWhoDecode) {
  SpareTime spare(*engine_, clock_, [this] { return turn(); });
  ASSERT_TRUE(spare.wait_for_turn(0));
  ASSERT_GE(spare.tokens(), 16u) << "nobody is running";
  submit(1, 3000);
  submit(2, 3000);
  decode();
  Sequence sequence(*pool_);
  ASSERT_TRUE(sequence.append(spare.tokens()));
  const std::vector<Token> tokens = random_tokens(spare.tokens(), 256, 99);
  const StepSequence step{.sequence = &sequence, .tokens = tokens, .logits_none = true};
  const auto stepped = spare.step({&step, 1});
  ASSERT_FALSE(stepped);
  EXPECT_EQ(stepped.error().code, ErrorCode::kBusy);
}

TEST_F(SpareTimeTest, TheFirstWhoComesHasItsPages) {
  open(200);
  Sequence held(*pool_);
  ASSERT_TRUE(held.append(150 * 16));
  EXPECT_FALSE(engine_->needs_guests_pages());
  Request request;
  request.spans.push_back({.tokens = random_tokens(1000, 256, 1), .label = {}});
  ASSERT_TRUE(engine_->submit(std::move(request)));
  EXPECT_TRUE(engine_->needs_guests_pages());
  held.clear();
  EXPECT_FALSE(engine_->needs_guests_pages());
}

TEST_F(SpareTimeTest, GivesUpWhereRequestsNeedItsPages) {
  open(2 * model_->page_shape().pages_for(128) + 4 * 4);  // what turns may need, twice, before there is a request
  submit(1, 200);
  decode();
  const auto measured = measure(60);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, ErrorCode::kCancelled);
  while (engine_->run_once()) {
  }
  EXPECT_TRUE(measure(60)) << "with nobody in flight";
}

TEST_F(SpareTimeTest, WhatIsStoredBetweenItsStepsIsNotItsOwnTime) {
  constexpr double kWriteS = 0.02;
  const RealClock clock;
  int writes = 0;
  const auto take_long = [&](const BlobId&) {
    ++writes;
    for (const double begun_s = clock.now_s(); clock.now_s() - begun_s < kWriteS;) {
    }
  };
  open(1024, {.on_write = take_long});
  NewRun run;
  run.tokens = random_tokens(64, 256, 1);
  Sequence sequence(*pool_);
  const Feed context{&sequence, run.tokens};
  ASSERT_TRUE(feed(*model_, {&context, 1}));
  cache_->store(run, sequence);
  ASSERT_EQ(writes, 0);

  SpareTime spare(*engine_, clock_, [] { return true; });
  EXPECT_TRUE(spare.wait_for_turn(0));
  EXPECT_GT(writes, 0);
  EXPECT_GE(spare.seconds_of_others(), writes * kWriteS);
}

// A whole profile, of a context whose requests go on and end meanwhile.
TEST_F(SpareTimeTest, ProfilesWhileRequestsAreInFlight) {
  QualityWatch watch({.prior = false, .beside = true, .keep_questions = false}, *engine_);
  const std::vector<Token> context = tokenizer_.tokenize(testing::sentences(200), false);
  const auto ask = [&](const std::string& question) {
    Request request;
    request.spans = {{context, true, "doc"}, {tokenizer_.tokenize(question, false), false, {}}};
    watch.on_request(request);
  };
  for (const char* question : {"why?", "how?", "who?", "when?"}) ask(question);
  submit(1, 12000);
  decode();
  bool asked = false;
  each_turn_ = [&] {
    if (std::exchange(asked, true)) return;
    ask("and what else?");  // within a piece of work
  };
  for (int i = 0; i < 100 && watch.stats().profiled == 0; ++i) {
    SpareTime spare(*engine_, clock_, [this] { return turn(); });
    if (!watch.work(Stop(spare))) break;
  }
  EXPECT_EQ(watch.stats().profiled, 1u);
  EXPECT_EQ(watch.stats().failed, 0u);
  EXPECT_EQ(watch.stats().questions, 5u);
  EXPECT_TRUE(asked);
  EXPECT_GT(engine_->stats().guest_tokens, 0u);
  EXPECT_FALSE(cache_->metadata_store()->qualities(cache_->run_of(context))->empty());
}

}  // namespace
}  // namespace shale
