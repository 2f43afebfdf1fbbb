// Writes GGUF files for tests: tiny random models, and first layers of real ones.
#pragma once

#include <ggml-cpp.h>
#include <gguf.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/weights/weights.h"

namespace shale::testing {

class GgufWriter {
 public:
  GgufWriter() : gguf_(gguf_init_empty()) {}
  ~GgufWriter() { gguf_free(gguf_); }
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  gguf_context* metadata() { return gguf_; }

  // F32; `columns` is the contiguous dimension, rows = 0 makes a vector. Returns where its elements lie.
  float* add(const std::string& name, std::int64_t columns, std::int64_t rows = 0) {
    const std::size_t elements = static_cast<std::size_t>(columns * std::max<std::int64_t>(rows, 1));
    contexts_.emplace_back(ggml_init({.mem_size = elements * sizeof(float) + ggml_tensor_overhead() + 64,
                                      .mem_buffer = nullptr,
                                      .no_alloc = false}));
    ggml_tensor* tensor = rows == 0 ? ggml_new_tensor_1d(contexts_.back().get(), GGML_TYPE_F32, columns)
                                    : ggml_new_tensor_2d(contexts_.back().get(), GGML_TYPE_F32, columns, rows);
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(gguf_, tensor);
    return static_cast<float*>(tensor->data);
  }
  // A matrix or vector as it is.
  void add(const GgufTensor& from) {
    contexts_.emplace_back(ggml_init(
        {.mem_size = from.data.size() + ggml_tensor_overhead() + 64, .mem_buffer = nullptr, .no_alloc = false}));
    ggml_context* context = contexts_.back().get();
    ggml_tensor* tensor = from.shape[1] == 1 ? ggml_new_tensor_1d(context, from.type, from.shape[0])
                                             : ggml_new_tensor_2d(context, from.type, from.shape[0], from.shape[1]);
    ggml_set_name(tensor, from.name.c_str());
    gguf_add_tensor(gguf_, tensor);
    std::memcpy(tensor->data, from.data.data(), from.data.size());
  }

  void write(const std::filesystem::path& path) const { gguf_write_to_file(gguf_, path.c_str(), false); }

 private:
  gguf_context* gguf_;
  std::vector<ggml_context_ptr> contexts_;
};

struct TinyModel {
  std::string architecture = "llama";
  std::uint32_t layers = 3, query_heads = 6, kv_heads = 2, head_dim = 32, embedding = 96, feed_forward = 160;
  std::uint32_t vocabulary = 320, context = 2048;
  bool tied_head = true;
  std::uint32_t window = 24;  // of gemma3
  std::uint32_t seed = 1;
};

// As the largest Gemma 3, its logits are not divided by the root of its head dimension, but by √(128 / 2).
inline TinyModel model_of_another_scale() {
  return {.architecture = "gemma3",
          .layers = 62,
          .query_heads = 2,
          .kv_heads = 1,
          .head_dim = 32,
          .embedding = 128,
          .feed_forward = 32};
}

// Random weights at the scale of trained ones, so that attention is neither flat nor one-hot. `change_metadata` has the
// last word on the keys.
inline void write_tiny_model(const TinyModel& tiny, const std::filesystem::path& path,
                             const std::function<void(gguf_context*)>& change_metadata = {}) {
  GgufWriter writer;
  std::mt19937 random(tiny.seed);
  std::normal_distribution<float> normal;
  const auto matrix = [&](const std::string& name, std::uint32_t columns, std::uint32_t rows, float scale = 1) {
    float* to = writer.add(name, columns, rows);
    for (std::size_t i = 0; i < std::size_t{columns} * rows; ++i) {
      to[i] = normal(random) * scale / std::sqrt(static_cast<float>(columns));
    }
  };
  const auto vector = [&](const std::string& name, std::uint32_t length, float mean) {
    float* to = writer.add(name, length);
    for (std::size_t i = 0; i < length; ++i) to[i] = mean + 0.1F * normal(random);
  };
  const std::string& name = tiny.architecture;
  gguf_context* metadata = writer.metadata();
  const auto number = [&](const std::string& key, std::uint32_t value) {
    gguf_set_val_u32(metadata, (name + "." + key).c_str(), value);
  };
  gguf_set_val_str(metadata, "general.architecture", name.c_str());
  number("block_count", tiny.layers);
  number("context_length", tiny.context);
  number("embedding_length", tiny.embedding);
  number("feed_forward_length", tiny.feed_forward);
  number("attention.head_count", tiny.query_heads);
  number("attention.head_count_kv", tiny.kv_heads);
  number("attention.key_length", tiny.head_dim);
  number("attention.value_length", tiny.head_dim);
  number("rope.dimension_count", tiny.head_dim);
  number("vocab_size", tiny.vocabulary);
  gguf_set_val_f32(metadata, (name + ".attention.layer_norm_rms_epsilon").c_str(), 1e-5F);
  gguf_set_val_f32(metadata, (name + ".rope.freq_base").c_str(), 10000);
  if (name == "gemma3") {
    number("attention.sliding_window", tiny.window);
    number("attention.sliding_window_pattern", 2);
  }
  gguf_set_val_str(metadata, "tokenizer.ggml.model", "none");

  const std::uint32_t query = tiny.query_heads * tiny.head_dim, kv = tiny.kv_heads * tiny.head_dim;
  matrix("token_embd.weight", tiny.embedding, tiny.vocabulary, 8);
  vector("output_norm.weight", tiny.embedding, 1);
  if (!tiny.tied_head) matrix("output.weight", tiny.embedding, tiny.vocabulary);
  for (std::uint32_t l = 0; l < tiny.layers; ++l) {
    const std::string layer = "blk." + std::to_string(l) + ".";
    vector(layer + "attn_norm.weight", tiny.embedding, 1);
    matrix(layer + "attn_q.weight", tiny.embedding, query, 1.5F);
    matrix(layer + "attn_k.weight", tiny.embedding, kv, 1.5F);
    matrix(layer + "attn_v.weight", tiny.embedding, kv);
    if (name == "gemma3") {
      vector(layer + "attn_q_norm.weight", tiny.head_dim, 1);
      vector(layer + "attn_k_norm.weight", tiny.head_dim, 1);
      vector(layer + "post_attention_norm.weight", tiny.embedding, 1);
      vector(layer + "post_ffw_norm.weight", tiny.embedding, 1);
    }
    if (name == "qwen2") {
      vector(layer + "attn_q.bias", query, 0);
      vector(layer + "attn_k.bias", kv, 0);
      vector(layer + "attn_v.bias", kv, 0);
    }
    matrix(layer + "attn_output.weight", query, tiny.embedding);
    vector(layer + "ffn_norm.weight", tiny.embedding, 1);
    matrix(layer + "ffn_gate.weight", tiny.embedding, tiny.feed_forward);
    matrix(layer + "ffn_up.weight", tiny.embedding, tiny.feed_forward);
    matrix(layer + "ffn_down.weight", tiny.feed_forward, tiny.embedding);
  }
  if (change_metadata) change_metadata(metadata);
  writer.write(path);
}

// The first `layers` layers of a real model (0: all), whose tensors `add` writes, its metadata otherwise as it is.
inline void write_layers(const std::filesystem::path& from, std::uint32_t layers, const std::filesystem::path& path,
                         const std::function<void(GgufWriter&, const GgufTensor&)>& add) {
  const auto file = GgufFile::open(from).value();
  const std::string architecture(file->text("general.architecture").value().value());
  gguf_context* original = gguf_init_from_file(from.c_str(), {.no_alloc = true, .ctx = nullptr});
  GgufWriter writer;
  gguf_set_kv(writer.metadata(), original);
  gguf_free(original);
  const auto all = static_cast<std::uint32_t>(file->number(architecture + ".block_count").value().value());
  const std::uint32_t kept = layers == 0 ? all : std::min(layers, all);
  gguf_set_val_u32(writer.metadata(), (architecture + ".block_count").c_str(), kept);
  for (const GgufTensor& tensor : file->tensors()) {
    unsigned layer = 0;
    if (std::sscanf(tensor.name.c_str(), "blk.%u.", &layer) == 1 && layer >= kept) continue;
    add(writer, tensor);
  }
  writer.write(path);
}

inline void write_as_it_is(GgufWriter& writer, const GgufTensor& tensor) { writer.add(tensor); }

inline void write_dequantised(GgufWriter& writer, const GgufTensor& tensor) {
  const bool vector = tensor.shape[1] == 1;
  dequantise_rows(tensor, 0, tensor.shape[1], writer.add(tensor.name, tensor.shape[0], vector ? 0 : tensor.shape[1]));
}

}  // namespace shale::testing
