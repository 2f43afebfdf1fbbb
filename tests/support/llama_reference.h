// Logits by libllama itself, to compare with.
#pragma once

#include <llama-cpp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <vector>

#include "model/library_log.h"
#include "model/model.h"

namespace shale::testing {

class LlamaReference {
 public:
  explicit LlamaReference(const std::filesystem::path& path) {
    silence_libraries();
    llama_model_params params = llama_model_default_params();
    model_.reset(llama_model_load_from_file(path.c_str(), params));
  }

  explicit operator bool() const { return model_ != nullptr; }

  // Logits of the last `rows` tokens, [rows][vocabulary], on one thread.
  std::vector<float> logits(std::span<const Token> tokens, std::size_t rows, bool flash_attention) const {
    const llama_context_ptr context = make_context(tokens.size(), flash_attention);
    std::vector<float> result;
    decode(*context, tokens, rows, result);
    return result;
  }

  // The prompt and its greedy continuation by `count` tokens.
  std::vector<Token> continue_greedily(std::span<const Token> prompt, std::size_t count) const {
    const llama_context_ptr context = make_context(prompt.size() + count, true);
    std::vector<Token> tokens(prompt.begin(), prompt.end());
    std::span<const Token> next = prompt;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<float> row;
      decode(*context, next, 1, row);
      tokens.push_back(static_cast<Token>(std::ranges::max_element(row) - row.begin()));
      next = std::span(tokens).last(1);
    }
    return tokens;
  }

 private:
  llama_context_ptr make_context(std::size_t tokens, bool flash_attention) const {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(tokens) + 8;
    params.n_batch = params.n_ubatch = kBatch;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_context_ptr(llama_init_from_model(model_.get(), params));
  }

  // Appends to what the context holds; the logits of the last `rows` tokens go to the end of `result`.
  void decode(llama_context& context, std::span<const Token> tokens, std::size_t rows,
              std::vector<float>& result) const {
    const auto vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    const llama_pos first = llama_memory_seq_pos_max(llama_get_memory(&context), 0) + 1;
    for (std::size_t done = 0; done < tokens.size(); done += kBatch) {
      const std::size_t count = std::min<std::size_t>(kBatch, tokens.size() - done);
      llama_batch batch = llama_batch_init(static_cast<std::int32_t>(count), 0, 1);
      batch.n_tokens = static_cast<std::int32_t>(count);
      for (std::size_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[done + i];
        batch.pos[i] = first + static_cast<llama_pos>(done + i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = done + i + rows >= tokens.size();
      }
      const bool decoded = llama_decode(&context, batch) == 0;
      for (std::size_t i = 0; decoded && i < count; ++i) {
        if (!batch.logits[i]) continue;
        const float* row = llama_get_logits_ith(&context, static_cast<std::int32_t>(i));
        result.insert(result.end(), row, row + vocabulary);
      }
      llama_batch_free(batch);
    }
  }

  static constexpr std::uint32_t kBatch = 512;
  llama_model_ptr model_;
};

// ‖a − b‖ / ‖b‖; infinite when the lengths differ.
inline double relative_rms(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace shale::testing
