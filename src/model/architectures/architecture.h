// What a GGUF file says about its model, checked, and what an architecture's name implies.
//
// Adding an architecture is one file `architecture_NAME.cc` and its line in the table of architecture.cc.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "model/weights/gguf_file.h"

namespace shale {

struct Hyperparameters;

// Decoder-only transformers with RMS norms, rotary positions, grouped queries and a gated feed-forward network differ
// in these alone.
struct Architecture {
  enum class Activation { kSilu, kGelu };

  std::string_view name;      // as `general.architecture` writes it, and the prefix of its keys
  int rope_mode;              // GGML_ROPE_TYPE_NORMAL rotates neighbouring channels, GGML_ROPE_TYPE_NEOX the two halves
  bool query_biases = false;  // biases on queries, keys and values are required
  bool head_norms = false;    // every head's query and key are normed before they are rotated
  bool post_norms = false;    // what attention and the feed-forward network give is normed before it is added
  Activation activation = Activation::kSilu;  // of the gate
  bool scaled_embedding = false;              // a token's embedding is multiplied by √embedding
  // Layers with windows, in files that name a window: all but every so manieth, unless the file says which. 0: none.
  std::uint32_t window_period = 0;
  float window_rope_base = 0;  // of layers with windows, unless the file says otherwise
  // What scores are multiplied by; null: 1/√head_dim.
  float (*attention_scale)(const Hyperparameters& hyper) = nullptr;
};

// Every architecture that can run, in alphabetical order.
std::span<const Architecture* const> architectures();

struct Hyperparameters {
  // What a layer's attention reads, and how its positions turn queries and keys.
  struct Layer {
    std::uint32_t window;  // a query sees its own token and the window − 1 before it; 0: all before it
    float rope_base;
    float rope_scale;  // positions are multiplied by it before they turn anything
  };

  const Architecture* architecture = nullptr;
  std::string name;
  std::uint32_t query_heads, kv_heads, head_dim, embedding, feed_forward, vocabulary, context_max;
  std::uint32_t rope_dimensions;  // rotated channels of a head, from the first
  float norm_epsilon;
  std::vector<Layer> layers;

  std::uint32_t layer_count() const { return static_cast<std::uint32_t>(layers.size()); }
  std::uint32_t query_width() const { return query_heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t qkv_width() const { return query_width() + 2 * kv_width(); }
  float attention_scale() const {
    return architecture->attention_scale ? architecture->attention_scale(*this)
                                         : 1 / std::sqrt(static_cast<float>(head_dim));
  }
};

// kUnsupported: another architecture, or a feature of this one that is not implemented (by name). kCorrupt: keys that
// are missing, of the wrong type, or out of any sensible range.
Result<Hyperparameters> read_hyperparameters(const GgufFile& file);

}  // namespace shale
