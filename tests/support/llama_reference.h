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
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(tokens.size()) + 8;
    params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    const llama_context_ptr context(llama_init_from_model(model_.get(), params));
    const auto vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
    std::vector<float> result;
    for (std::size_t done = 0; done < tokens.size(); done += 512) {
      const std::size_t count = std::min<std::size_t>(512, tokens.size() - done);
      llama_batch batch = llama_batch_init(static_cast<std::int32_t>(count), 0, 1);
      batch.n_tokens = static_cast<std::int32_t>(count);
      for (std::size_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[done + i];
        batch.pos[i] = static_cast<llama_pos>(done + i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = done + i + rows >= tokens.size();
      }
      const bool decoded = llama_decode(context.get(), batch) == 0;
      for (std::size_t i = 0; decoded && i < count; ++i) {
        if (!batch.logits[i]) continue;
        const float* row = llama_get_logits_ith(context.get(), static_cast<std::int32_t>(i));
        result.insert(result.end(), row, row + vocabulary);
      }
      llama_batch_free(batch);
    }
    return result;
  }

 private:
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
