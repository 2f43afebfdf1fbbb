// The whole forward pass against libllama on the same F32 weights. libllama's own flash attention and plain attention
// differ from each other; ours may differ from either no more than half as much again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "model/architectures/architecture.h"
#include "support/gguf_writer.h"
#include "support/llama_reference.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using testing::LlamaReference;
using testing::ModelRunner;
using testing::random_tokens;
using testing::relative_rms;
using testing::TinyModel;

constexpr double kFloor = 1e-6;  // where libllama agrees with itself to the last bit
// Of one token alone: ours are multiplied as those of many are, libllama's by a kernel of their own, which sums in
// another order; what that moves, GELU's table of halves makes larger.
constexpr double kFloorAlone = 5e-4;

struct Case {
  const char* name;
  TinyModel tiny;
  void (*change_metadata)(gguf_context*) = [](gguf_context*) {};
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class LogitsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    path_ = folder_.path() / "tiny.gguf";
    testing::write_tiny_model(GetParam().tiny, path_, GetParam().change_metadata);
  }

  // Compares with both kinds of libllama's attention over the last `rows` logits.
  void expect_equal(std::span<const float> ours, std::span<const Token> tokens, std::size_t rows) {
    const LlamaReference reference(path_);
    ASSERT_TRUE(reference);
    const auto flash = reference.logits(tokens, rows, true), plain = reference.logits(tokens, rows, false);
    const double allowed = std::max(1.5 * relative_rms(flash, plain), tokens.size() > 1 ? kFloor : kFloorAlone);
    EXPECT_LE(std::min(relative_rms(ours, flash), relative_rms(ours, plain)), allowed) << tokens.size() << " tokens";
    EXPECT_LT(allowed, 0.02) << "the comparison says nothing";
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST_P(LogitsTest, MatchLibllamaForPromptsOfManyLengths) {
  ModelRunner runner(path_);
  for (const std::size_t length : {1, 17, 100, 1100}) {
    const auto tokens = random_tokens(length, GetParam().tiny.vocabulary, 3);
    const std::size_t rows = std::min<std::size_t>(length, 50);
    Sequence sequence = runner.sequence();
    expect_equal(runner.logits(sequence, tokens, rows, 512), tokens, rows);
  }
}

TEST_P(LogitsTest, MatchLibllamaInChunksOfAnySize) {
  ModelRunner runner(path_);
  const auto tokens = random_tokens(130, GetParam().tiny.vocabulary, 4);
  for (const std::size_t chunk : {1, 7, 16, 33}) {
    Sequence sequence = runner.sequence();
    expect_equal(runner.logits(sequence, tokens, 130, chunk), tokens, 130);
  }
}

TEST_P(LogitsTest, DoNotDependOnOtherSequencesOfTheBatch) {
  ModelRunner runner(path_);
  const std::uint32_t vocabulary = GetParam().tiny.vocabulary;
  const std::size_t lengths[] = {40, 1, 90};
  std::vector<std::vector<Token>> prompts;
  std::vector<Sequence> sequences;
  for (const std::size_t length : lengths) {
    prompts.push_back(random_tokens(length + 1, vocabulary, static_cast<std::uint32_t>(length)));
    sequences.push_back(runner.sequence());
    runner.logits(sequences.back(), std::span(prompts.back()).first(length), 0, 512);
  }
  std::vector<StepSequence> batch;
  for (std::size_t i = 0; i < 3; ++i) {
    sequences[i].append(1).value();
    batch.push_back({.sequence = &sequences[i], .tokens = std::span(prompts[i]).last(1)});
  }
  const auto logits = runner.model().step(batch).value();
  ASSERT_EQ(logits.size(), 3 * vocabulary);
  for (std::size_t i = 0; i < 3; ++i) expect_equal(logits.subspan(i * vocabulary, vocabulary), prompts[i], 1);
}

TEST_P(LogitsTest, ComeForTheRowsThatAskInTheirOrder) {
  ModelRunner runner(path_);
  const std::uint32_t vocabulary = GetParam().tiny.vocabulary;
  const auto tokens = random_tokens(12, vocabulary, 9);
  Sequence all = runner.sequence(), none = runner.sequence(), last = runner.sequence();
  for (Sequence* sequence : {&all, &none, &last}) sequence->append(12).value();
  const StepSequence batch[] = {{.sequence = &all, .tokens = tokens, .logits_all = true},
                                {.sequence = &none, .tokens = tokens, .logits_none = true},
                                {.sequence = &last, .tokens = tokens}};
  const auto logits = runner.model().step(batch).value();
  ASSERT_EQ(logits.size(), 13 * vocabulary);
  EXPECT_LT(relative_rms(logits.last(vocabulary), logits.subspan(11 * vocabulary, vocabulary)), 1e-5);
}

TEST_P(LogitsTest, DoNotDependOnThePageSize) {
  const auto tokens = random_tokens(77, GetParam().tiny.vocabulary, 5);
  for (const std::uint32_t block_size : {8U, 32U, 64U}) {
    ModelRunner runner(path_, {.threads = 1, .block_size = block_size, .float32 = true});
    Sequence sequence = runner.sequence();
    expect_equal(runner.logits(sequence, tokens, 77, 20), tokens, 77);
  }
}

const Case kCases[] = {
    {"gemma3", {.architecture = "gemma3", .layers = 5}},
    {"gemma3_one_wide_head",
     {.architecture = "gemma3", .layers = 7, .query_heads = 4, .kv_heads = 1, .head_dim = 256, .window = 512},
     [](gguf_context* gguf) {
       gguf_remove_key(gguf, "gemma3.attention.sliding_window_pattern");  // every sixth
       gguf_set_val_f32(gguf, "gemma3.rope.freq_base", 1e6F);
       gguf_set_val_f32(gguf, "gemma3.rope.scaling.factor", 8);
     }},
    {"gemma3_of_62_layers",
     {.architecture = "gemma3", .layers = 62, .query_heads = 2, .kv_heads = 1, .head_dim = 16, .embedding = 32},
     [](gguf_context* gguf) {
       const std::array<std::int32_t, 62> windowed = {1, 1, 0, 1};
       gguf_set_arr_data(gguf, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_INT32, windowed.data(), 62);
     }},
    {"gemma3_without_windows",
     {.architecture = "gemma3"},
     [](gguf_context* gguf) { gguf_remove_key(gguf, "gemma3.attention.sliding_window"); }},
    {"llama", {}},
    {"llama_scaled",
     {},
     [](gguf_context* gguf) {
       gguf_set_val_str(gguf, "llama.rope.scaling.type", "linear");
       gguf_set_val_f32(gguf, "llama.rope.scaling.factor", 4);
     }},
    {"llama_own_head", {.query_heads = 3, .kv_heads = 1, .head_dim = 64, .tied_head = false}},
    {"qwen2", {.architecture = "qwen2", .head_dim = 16}},
    {"qwen2_own_head",
     {.architecture = "qwen2", .query_heads = 7, .kv_heads = 1, .embedding = 224, .tied_head = false}}};

INSTANTIATE_TEST_SUITE_P(Architectures, LogitsTest, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Logits, EveryArchitectureIsCompared) {
  for (const Architecture* each : architectures()) {
    EXPECT_TRUE(std::ranges::any_of(kCases, [&](const Case& tested) { return tested.tiny.architecture == each->name; }))
        << each->name << " has no case here";
  }
}

}  // namespace
}  // namespace shale
