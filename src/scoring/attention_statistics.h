// What scorers read beside a context's keys and values, gathered while it was computed, so that tokens can be ranked
// later as they would have been at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scoring/scorer.h"

namespace shale {

// What both ask for.
ScorerNeeds operator|(const ScorerNeeds& a, const ScorerNeeds& b);

// Each part is empty where it was not gathered; meanings as in LayerKv. Storing keeps every bit: queries are fp16
// values from the start.
struct AttentionStatistics {
  std::uint32_t layers = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t tokens = 0;                  // of the context
  std::uint32_t window = 0;                  // of its last tokens, whose queries are there; at most `tokens`
  std::vector<float> queries = {};           // [layers][query_heads][window][head_dim]
  std::vector<float> attention_sums = {};    // [layers][kv_heads][tokens]
  std::vector<float> query_mean = {};        // [layers][query_heads][head_dim]
  std::vector<float> query_covariance = {};  // [layers][query_heads][head_dim][head_dim]
  std::vector<float> repeat_attention = {};  // [layers][kv_heads][tokens]

  bool empty() const;
  // What it offers. `last_queries` has no limit where the window holds every token.
  ScorerNeeds given() const;
  // Whether every part that is there has the size that the numbers above say.
  bool consistent() const;
  // Points one layer's fields at these parts; this must outlive `layer`.
  void hand_over(std::uint32_t index, LayerKv<Half>& layer) const;
  // Takes the parts of `other`, of the same context, that this one lacks; takes the longer of two windows.
  void merge(AttentionStatistics other);
};

// What scorers may read of the model that computed a context. References must outlive this.
struct ModelTraits {
  std::span<const Rope> ropes = {};             // per layer; empty: not known
  std::span<const std::uint32_t> windows = {};  // per layer, 0: none; or empty
  float attention_scale = 0;                    // LayerKv's
  const Calibration* calibration = nullptr;

  ScorerNeeds given() const { return {.rope = !ropes.empty(), .calibration = calibration != nullptr}; }
};

// Names, in words, what a scorer with these needs lacks to rank a context of `tokens` tokens whose keys and values are
// at hand; empty if nothing.
std::string missing_needs(ScorerNeeds needs, std::uint32_t tokens, const AttentionStatistics& statistics,
                          const ModelTraits& model);

}  // namespace shale
