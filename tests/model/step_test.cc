// What a step promises beside logits: hooks, refusals, fingerprints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/capture.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ModelRunner;
using testing::random_tokens;

class StepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path() / "tiny.gguf";
    testing::write_tiny_model({}, path_);
  }
  testing::TemporaryFolder folder_;
  std::filesystem::path path_;
};

class Recorder final : public StepHooks {
 public:
  Status before_attention(std::uint32_t layer) override {
    events.push_back(static_cast<int>(layer));
    if (layer == fail_at) return fail(ErrorCode::kIo, "the tier is gone");
    return {};
  }
  void after_layer(std::uint32_t layer) override { events.push_back(100 + static_cast<int>(layer)); }
  std::vector<int> events;
  std::uint32_t fail_at = 99;
};

TEST_F(StepTest, CallsHooksAroundEveryLayer) {
  ModelRunner runner(path_);
  const auto tokens = random_tokens(5, 320, 1);
  Sequence sequence = runner.sequence();
  sequence.append(5).value();
  const StepSequence part{.sequence = &sequence, .tokens = tokens};
  Recorder recorder;
  ASSERT_TRUE(runner.model().step({&part, 1}, &recorder));
  EXPECT_THAT(recorder.events, ElementsAre(0, 100, 1, 101, 2, 102));

  Recorder broken;
  broken.fail_at = 1;
  sequence.append(5).value();
  const auto result = runner.model().step({&part, 1}, &broken);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kIo);
  EXPECT_THAT(broken.events, ElementsAre(0, 100, 1));
}

TEST_F(StepTest, RotatesByLogicalPosition) {
  // A sequence of 48 tokens goes on behind them, whatever their pages hold.
  ModelRunner runner(path_);
  const Token token = 7;
  const ModelInfo& info = runner.model().info();
  std::vector<float> at_0, at_48;
  Sequence fresh = runner.sequence(), later = runner.sequence();
  later.append(48).value();
  for (auto* sequence : {&fresh, &later}) {
    Capture capture(info, sequence->length(), 1, {.last_queries = 1});
    sequence->append(1).value();
    const StepSequence part{.sequence = sequence, .tokens = {&token, 1}, .capture = &capture};
    ASSERT_TRUE(runner.model().step({&part, 1}));
    (sequence == &fresh ? at_0 : at_48) = capture.take().queries;
  }
  // The first layer's first head: the same query, its first pair of channels turned by 48 radians.
  EXPECT_NEAR(at_48[0], at_0[0] * std::cos(48.0) - at_0[1] * std::sin(48.0), 1e-3);
  EXPECT_NEAR(at_48[1], at_0[0] * std::sin(48.0) + at_0[1] * std::cos(48.0), 1e-3);
}

TEST_F(StepTest, RefusesWhatItCannotRun) {
  ModelRunner runner(path_, {.threads = 1, .batch_tokens_max = 8, .float32 = true});
  Sequence sequence = runner.sequence();
  const auto error = [&](const StepSequence& part) { return runner.model().step({&part, 1}).error().message; };
  const std::vector<Token> good(4, 1), unknown = {320}, negative = {-1}, many(9, 1);
  EXPECT_THAT(error({.sequence = &sequence, .tokens = good}), HasSubstr("no room"));
  sequence.append(9).value();
  EXPECT_THAT(error({.sequence = &sequence, .tokens = {}}), HasSubstr("no room"));
  EXPECT_THAT(error({.sequence = &sequence, .tokens = unknown}), HasSubstr("token 320"));
  EXPECT_THAT(error({.sequence = &sequence, .tokens = negative}), HasSubstr("token -1"));
  EXPECT_THAT(error({.sequence = &sequence, .tokens = many}), HasSubstr("loaded for 8"));
  Capture ends_within(runner.model().info(), 0, 7, {});
  EXPECT_THAT(error({.sequence = &sequence, .tokens = good, .capture = &ends_within}), HasSubstr("captured"));
  sequence.append(2048).value();
  EXPECT_THAT(error({.sequence = &sequence, .tokens = good}), HasSubstr("context"));
}

TEST_F(StepTest, FingerprintsTellModelsAndSettingsApart) {
  const auto print = [](const std::filesystem::path& path, ModelOptions options) {
    return Model::load(path, options).value()->fingerprint();
  };
  const ModelOptions file{.weights = WeightChoice::kFile, .threads = 1};
  const Hash128 first = print(path_, file);
  EXPECT_EQ(first, print(path_, {.weights = WeightChoice::kFile, .threads = 2, .batch_tokens_max = 64}));
  EXPECT_NE(first, print(path_, {.threads = 1, .float32 = true}));
  EXPECT_NE(first, print(path_, {.weights = WeightChoice::kFile, .threads = 1, .block_size = 32}));
  const auto other = folder_.path() / "other.gguf";
  testing::write_tiny_model({.seed = 2}, other);
  EXPECT_NE(first, print(other, file));
}

TEST_F(StepTest, LoadRefusesImpossibleOptions) {
  EXPECT_EQ(Model::load(path_, {.block_size = 12}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Model::load(path_, {.batch_tokens_max = 0}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(StepTest, ExecutorDoesEveryPieceOnce) {
  const auto model = Model::load(path_, {.threads = 3, .float32 = true}).value();
  EXPECT_EQ(model->executor().threads(), 3);
  for (const std::size_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> done(count);
    model->executor().parallel_for(count, [&](std::size_t i) { ++done[i]; });
    for (const auto& times : done) ASSERT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace shale
