// What a GGUF file says about its model, checked, and what an architecture's name implies.
//
// Adding an architecture is one file `architecture_NAME.cc` and its line in the table of architecture.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "model/gguf_file.h"

namespace shale {

// Decoder-only transformers with RMS norms, rotary positions, grouped queries and a SwiGLU feed-forward network differ
// in these alone.
struct Architecture {
  std::string_view name;  // as `general.architecture` writes it, and the prefix of its keys
  int rope_mode;          // GGML_ROPE_TYPE_NORMAL rotates neighbouring channels, GGML_ROPE_TYPE_NEOX the two halves
  bool query_biases;      // biases on queries, keys and values are required
};

// Every architecture that can run, in alphabetical order.
std::span<const Architecture* const> architectures();

struct Hyperparameters {
  const Architecture* architecture = nullptr;
  std::string name;
  std::uint32_t layers, query_heads, kv_heads, head_dim, embedding, feed_forward, vocabulary, context_max;
  std::uint32_t rope_dimensions;  // rotated channels of a head, from the first
  float rope_base;
  float norm_epsilon;

  std::uint32_t query_width() const { return query_heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// kUnsupported: another architecture, or a feature of this one that is not implemented (by name). kCorrupt: keys that
// are missing, of the wrong type, or out of any sensible range.
Result<Hyperparameters> read_hyperparameters(const GgufFile& file);

}  // namespace shale
