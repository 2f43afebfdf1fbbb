// One layer as arrays of other programs hold it, token by token, laid out in pages and observed, so that any scorer can
// read it: what the engine does while it computes a context, done afterwards from its queries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scoring/scorer.h"

namespace shale {

struct RowShape {
  std::uint32_t tokens = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t query_heads = 0;   // 0 without queries
  std::uint32_t query_tokens = 0;  // the last so many tokens' queries are there
  std::uint32_t head_dim = 0;
};

// The rows must stay in place while this lives.
class RowLayer {
 public:
  // keys, values: [kv_heads][tokens][head_dim], keys after RoPE, token i at position i; no values where none are
  // needed. queries: [query_heads][query_tokens][head_dim], after RoPE; all tokens' where needs.attention_sums or
  // query_moments.
  RowLayer(const RowShape& shape, std::span<const float> keys, std::span<const float> values,
           std::span<const float> queries, const ScorerNeeds& needs, const Rope& rope);
  RowLayer(const RowLayer&) = delete;
  RowLayer& operator=(const RowLayer&) = delete;

  LayerKv<float>& layer() { return layer_; }
  const LayerKv<float>& layer() const { return layer_; }

 private:
  void lay_out(std::span<const float> keys, std::span<const float> values);
  void observe(const ScorerNeeds& needs);

  LayerKv<float> layer_;
  std::vector<float> memory_, attention_sums_, query_mean_, query_covariance_;
  std::vector<LayerKv<float>::Page> pages_;
};

// One head's queries before RoPE, [tokens][head_dim], of those after it; token i at position i.
std::vector<float> unturned(std::span<const float> queries, const Rope& rope, std::uint32_t head_dim);

}  // namespace shale
