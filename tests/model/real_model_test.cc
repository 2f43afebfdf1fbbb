// Real models against libllama: the same logits when both run dequantised F32 weights, the same words when both run the
// file as it is used.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ranges>

#include "support/gguf_writer.h"
#include "support/llama_reference.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using testing::LlamaReference;
using testing::ModelRunner;
using testing::relative_rms;

// English prose of the licence kind, and code: what the models have seen.
constexpr const char* kText =
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated "
    "documentation files (the \"Software\"), to deal in the Software without restriction, including without limitation "
    "the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and "
    "to "
    "permit persons to whom the Software is furnished to do so, subject to the following conditions: The above "
    "copyright "
    "notice and this permission notice shall be included in all copies or substantial portions of the Software.\n\n"
    "def quicksort(items):\n    if len(items) <= 1:\n        return items\n    pivot = items[len(items) // 2]\n"
    "    left = [x for x in items if x < pivot]\n    middle = [x for x in items if x == pivot]\n"
    "    right = [x for x in items if x > pivot]\n    return quicksort(left) + middle + quicksort(right)\n";

class RealModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = testing::real_model(GetParam());
    if (path_.empty()) GTEST_SKIP() << "no " << GetParam() << ".gguf below SHALE_MODEL_DIR";
    tokens_ = Tokenizer::load(path_).value()->tokenize(kText, false);
  }

  std::filesystem::path path_;
  std::vector<Token> tokens_;
  testing::TemporaryFolder folder_;
};

// The first layers are every kind of tensor that the file has, at a fraction of the whole model's time and disk.
TEST_P(RealModelTest, LogitsMatchLibllamaInF32) {
  const auto dequantised = folder_.path() / "f32.gguf";
  testing::write_dequantised(path_, 6, dequantised);
  const LlamaReference reference(dequantised);
  ASSERT_TRUE(reference);
  ModelRunner runner(dequantised);
  Sequence sequence = runner.sequence();
  const std::size_t rows = 32;
  std::vector<Token> tokens = tokens_;
  while (tokens.size() < 600) tokens.insert(tokens.end(), tokens_.begin(), tokens_.end());  // more than windows hold
  const auto ours = runner.logits(sequence, tokens, rows, 100);
  const auto flash = reference.logits(tokens, rows, true), plain = reference.logits(tokens, rows, false);
  EXPECT_LE(std::min(relative_rms(ours, flash), relative_rms(ours, plain)), 1.5 * relative_rms(flash, plain));
}

std::size_t arg_max(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

// Teacher-forced: libllama continues real prompts greedily, and at every position of its continuations our choice is
// compared with its own. A disagreement must be a near-tie in its logits.
//
// Both sides round, each in its own way, so neither is the truth: that is the file's weights in F32, with which the
// fast types must agree.
TEST_P(RealModelTest, GreedyChoicesAreLibllamas) {
  constexpr std::size_t kContinued = 104;
  const LlamaReference reference(path_);
  ASSERT_TRUE(reference);
  ModelRunner file(path_, {.weights = WeightChoice::kFile, .threads = 2}), fast(path_, {.threads = 2}),
      exact(path_, {.threads = 2, .float32 = true});
  const std::size_t vocabulary = fast.model().info().vocabulary;
  std::size_t all = 0, file_in_one_step = 0, fast_in_one_step = 0, fast_by_token = 0, fast_exact = 0, theirs_exact = 0;
  for (const std::size_t length : {tokens_.size() / 4, tokens_.size() / 2, tokens_.size()}) {
    const auto tokens = reference.continue_greedily(std::span(tokens_).first(length), kContinued);
    const auto logits = reference.logits(tokens, kContinued + 1, true);
    const auto theirs = std::span(tokens).subspan(length);
    const auto choose = [&](ModelRunner& runner, std::size_t chunk) {
      Sequence sequence = runner.sequence();
      runner.logits(sequence, std::span(tokens).first(length - 1), 0, 512);
      const auto rows = runner.logits(sequence, std::span(tokens).subspan(length - 1), kContinued + 1, chunk);
      std::vector<Token> chosen(kContinued);
      for (std::size_t i = 0; i < kContinued; ++i) {
        chosen[i] = static_cast<Token>(arg_max(std::span(rows).subspan(i * vocabulary, vocabulary)));
        const float* row = &logits[i * vocabulary];
        EXPECT_LT(row[theirs[i]] - row[chosen[i]], 1) << "position " << i;
      }
      return chosen;
    };
    const auto same = [=](std::span<const Token> a, std::span<const Token> b) {
      return static_cast<std::size_t>(
          std::ranges::count(std::views::iota(0UZ, kContinued), true, [&](std::size_t i) { return a[i] == b[i]; }));
    };
    const auto truth = choose(exact, 512), ours = choose(fast, 512);
    all += kContinued;
    file_in_one_step += same(choose(file, 512), theirs);
    fast_in_one_step += same(ours, theirs);
    fast_by_token += same(choose(fast, 1), theirs);
    fast_exact += same(ours, truth);
    theirs_exact += same(theirs, truth);
  }
  const auto share = [&](std::size_t count) { return static_cast<double>(count) / static_cast<double>(all); };
  EXPECT_GE(share(file_in_one_step), 0.97) << file_in_one_step << " of " << all;
  EXPECT_GE(share(fast_in_one_step), 0.93) << fast_in_one_step << " of " << all;
  EXPECT_GE(share(fast_by_token), 0.92) << fast_by_token << " of " << all;
  EXPECT_GE(share(fast_exact), 0.97) << fast_exact << " and " << theirs_exact << " of " << all;
  RecordProperty("choices",
                 fmt::format("file {} fast {} by token {}; as in F32: fast {} libllama {} of {}", file_in_one_step,
                             fast_in_one_step, fast_by_token, fast_exact, theirs_exact, all));
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelTest, ::testing::Values("gemma3-270m", "qwen2.5-coder-0.5b", "smollm2-135m"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace_if(name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace shale
