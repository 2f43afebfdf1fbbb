// What the computation of an entry left behind for scorers, beside its keys and values. Kept with the entry's
// uncompressed object (docs/formats/attention statistics.md), so that it can be ranked later as it would have been at
// once.
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
  std::uint32_t tokens = 0;                  // of the entry
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
  // Takes the parts of `other`, of the same entry, that this one lacks; of two windows the longer.
  void merge(AttentionStatistics other);
};

// What scorers may read of the model that computed an entry. References must outlive whoever holds this.
struct ModelTraits {
  std::span<const Rope> ropes = {};             // per layer; empty: not known
  std::span<const std::uint32_t> windows = {};  // per layer, LayerKv's sliding_window; empty: none
  const Calibration* calibration = nullptr;

  ScorerNeeds given() const { return {.rope = !ropes.empty(), .calibration = calibration != nullptr}; }
};

// What a scorer with these needs lacks of an entry of `tokens` tokens whose keys and values are at hand, in words;
// empty where it can rank.
std::string missing_needs(ScorerNeeds needs, std::uint32_t tokens, const AttentionStatistics& statistics,
                          const ModelTraits& model);

}  // namespace shale
