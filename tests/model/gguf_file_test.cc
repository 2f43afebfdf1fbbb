// Damaged and hostile files: an error or a model that runs, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/aligned_buffer.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class GgufFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

  std::string bytes_of_tiny_model(const std::string& architecture) const {
    testing::write_tiny_model({.architecture = architecture,
                               .layers = 1,
                               .query_heads = 2,
                               .kv_heads = 1,
                               .embedding = 32,
                               .feed_forward = 32,
                               .vocabulary = 64},
                              path("tiny.gguf"));
    std::ifstream stream(path("tiny.gguf"), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  Result<std::unique_ptr<Model>> load(const std::string& bytes) const {
    std::ofstream(path("damaged.gguf"), std::ios::binary) << bytes;
    return Model::load(path("damaged.gguf"), options_);
  }

  // Loads it, and where that works runs a token.
  void try_bytes(const std::string& bytes) {
    const auto model = load(bytes);
    if (!model) {
      const ErrorCode code = model.error().code;
      ASSERT_THAT(code, AnyOf(ErrorCode::kCorrupt, ErrorCode::kUnsupported, ErrorCode::kFull)) << model.error().message;
      ASSERT_THAT(model.error().message, HasSubstr("damaged.gguf"));
      return;
    }
    const auto pool = PagePool::create((*model)->page_shape(), 1 << 20);
    if (!pool) return;
    Sequence sequence(**pool);
    if (!sequence.append(1)) return;
    const Token token = 0;
    const StepSequence part{.sequence = &sequence, .tokens = {&token, 1}};
    ASSERT_TRUE((*model)->step({&part, 1}));
  }

  // The error of a tiny model whose metadata `change` edits.
  Error error_after(const std::string& architecture, const std::function<void(gguf_context*)>& change) const {
    testing::write_tiny_model({.architecture = architecture, .layers = 1, .vocabulary = 64}, path("damaged.gguf"),
                              change);
    const auto model = Model::load(path("damaged.gguf"), options_);
    return model ? Error{ErrorCode::kInternal, "loaded"} : model.error();
  }

  testing::TemporaryFolder folder_;
  ModelOptions options_{.weights = WeightChoice::kFile, .threads = 1, .batch_tokens_max = 8};
};

TEST_F(GgufFileTest, NamesAMissingOrForeignFile) {
  EXPECT_EQ(Model::load(path("nothing.gguf"), options_).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(load("").error().message, HasSubstr("empty"));
  EXPECT_THAT(load("%PDF-1.7 and so on, long enough").error().message, HasSubstr("not a GGUF file"));
  EXPECT_THAT(Model::load(folder_.path(), options_).error().message, HasSubstr("not a regular file"));
}

TEST_F(GgufFileTest, SurvivesTruncationAnywhere) {
  const std::string bytes = bytes_of_tiny_model("llama");
  const std::size_t metadata = GgufFile::open(path("tiny.gguf")).value()->metadata().size();
  for (std::size_t length = 0; length < bytes.size(); length += length < metadata ? 3 : 97) {
    const auto model = load(bytes.substr(0, length));
    ASSERT_FALSE(model) << length;
    ASSERT_EQ(model.error().code, ErrorCode::kCorrupt) << length;
  }
  EXPECT_TRUE(load(bytes));
}

TEST_F(GgufFileTest, SurvivesFlippedMetadata) {
  for (const char* architecture : {"gemma3", "llama"}) {
    const std::string bytes = bytes_of_tiny_model(architecture);
    const std::size_t metadata = GgufFile::open(path("tiny.gguf")).value()->metadata().size();
    for (std::size_t i = 0; i < metadata; ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        try_bytes(damaged);
        if (HasFatalFailure()) FAIL() << architecture << ": byte " << i << " flipped by " << flip;
      }
    }
  }
}

TEST_F(GgufFileTest, SaysWhatIsWrong) {
  const auto number = [](const char* key, std::uint32_t value) {
    return [=](gguf_context* gguf) { gguf_set_val_u32(gguf, key, value); };
  };
  const auto real = [](const char* key, float value) {
    return [=](gguf_context* gguf) { gguf_set_val_f32(gguf, key, value); };
  };
  const auto expect_of = [&](const char* architecture, const std::function<void(gguf_context*)>& change, ErrorCode code,
                             const char* words) {
    const Error error = error_after(architecture, change);
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_THAT(error.message, HasSubstr(words));
  };
  const auto expect = [&](const std::function<void(gguf_context*)>& change, ErrorCode code, const char* words) {
    expect_of("llama", change, code, words);
  };
  expect([](gguf_context* gguf) { gguf_set_val_str(gguf, "general.architecture", "mamba"); }, ErrorCode::kUnsupported,
         "\"mamba\" is not supported; these are: gemma3, llama, qwen2");
  expect([](gguf_context* gguf) { gguf_set_val_str(gguf, "llama.rope.scaling.type", "yarn"); }, ErrorCode::kUnsupported,
         "yarn");
  expect([](gguf_context* gguf) { gguf_set_val_str(gguf, "llama.block_count", "three"); }, ErrorCode::kCorrupt,
         "llama.block_count is not a number");
  expect([](gguf_context* gguf) { gguf_remove_key(gguf, "llama.embedding_length"); }, ErrorCode::kCorrupt,
         "llama.embedding_length is missing");
  expect(number("llama.block_count", 2), ErrorCode::kCorrupt, "blk.1.attn_norm.weight is missing");
  expect(number("llama.block_count", 0), ErrorCode::kCorrupt, "llama.block_count is 0");
  expect(number("llama.embedding_length", 128), ErrorCode::kCorrupt, "has shape");
  expect(number("llama.feed_forward_length", 0xffffffff), ErrorCode::kCorrupt, "llama.feed_forward_length");
  expect(number("llama.attention.head_count_kv", 4), ErrorCode::kCorrupt, "divide");
  expect(number("llama.expert_count", 8), ErrorCode::kUnsupported, "experts");
  expect(real("llama.rope.scaling.factor", -4), ErrorCode::kCorrupt, "llama.rope.scaling.factor is -4");

  const auto expect_gemma = [&](const std::function<void(gguf_context*)>& change, ErrorCode code, const char* words) {
    expect_of("gemma3", change, code, words);
  };
  const auto pattern = [](gguf_type type, const void* data, std::size_t count) {
    return [=](gguf_context* gguf) {
      gguf_set_arr_data(gguf, "gemma3.attention.sliding_window_pattern", type, data, count);
    };
  };
  const float halves[] = {0.5F};
  expect_gemma(number("gemma3.attention.sliding_window", 0xffffffff), ErrorCode::kCorrupt, "sliding_window is");
  expect_gemma(number("gemma3.attention.sliding_window_pattern", 0), ErrorCode::kCorrupt,
               "sliding_window_pattern is 0");
  expect_gemma(pattern(GGUF_TYPE_INT32, halves, 0), ErrorCode::kCorrupt, "speaks of 0 layers of 1");
  expect_gemma(pattern(GGUF_TYPE_FLOAT32, halves, 1), ErrorCode::kCorrupt, "not an array of flags");
  expect_gemma(real("gemma3.rope.freq_base_swa", NAN), ErrorCode::kCorrupt, "gemma3.rope.freq_base_swa is nan");
  expect_gemma(real("gemma3.final_logit_softcapping", 30), ErrorCode::kUnsupported, "final_logit_softcapping = 30");
  expect_gemma(number("gemma3.block_count", 2), ErrorCode::kCorrupt, "blk.1.attn_norm.weight is missing");
}

}  // namespace
}  // namespace shale
