// A layer for scorers, built from rows: [kv_heads][tokens][head_dim], as reference data comes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/half.h"
#include "scoring/attention_sums.h"
#include "scoring/calibration.h"
#include "scoring/query_moments.h"
#include "scoring/scorer.h"

namespace shale {

struct LayerRows {
  std::uint32_t tokens = 0, kv_heads = 0, head_dim = 0, query_heads = 0, layer = 0;
  std::vector<float> keys = {}, values = {};  // [kv_heads][tokens][head_dim]
  std::vector<float> queries = {};            // [query_heads][window_tokens][head_dim]
  std::uint32_t window_tokens = 0;
  std::uint32_t first_position = 0;
  Rope rope = {};
  float attention_scale = 0;
  std::vector<float> repeat_attention = {};  // [kv_heads][tokens]

  float& key(std::uint32_t head, std::uint32_t token, std::uint32_t c) {
    return keys[(std::size_t{head} * tokens + token) * head_dim + c];
  }
  float& value(std::uint32_t head, std::uint32_t token, std::uint32_t c) {
    return values[(std::size_t{head} * tokens + token) * head_dim + c];
  }
};

// Normally distributed and rounded to binary16, so that both element types hold the same numbers.
inline LayerRows random_rows(std::uint32_t tokens, std::uint32_t kv_heads, std::uint32_t group, std::uint32_t head_dim,
                             std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  LayerRows rows{.tokens = tokens, .kv_heads = kv_heads, .head_dim = head_dim, .query_heads = kv_heads * group};
  const auto fill = [&](std::vector<float>& to, std::size_t count) {
    to.resize(count);
    for (float& x : to) x = to_float(to_half(normal(random)));
  };
  fill(rows.keys, std::size_t{kv_heads} * tokens * head_dim);
  fill(rows.values, std::size_t{kv_heads} * tokens * head_dim);
  rows.window_tokens = tokens;
  fill(rows.queries, std::size_t{rows.query_heads} * tokens * head_dim);
  rows.first_position = 3;
  rows.rope.dimensions = head_dim;
  fill(rows.repeat_attention, std::size_t{kv_heads} * tokens);
  return rows;
}

// The queries of one head before RoPE, where those of all tokens are there.
inline std::vector<float> unturned_queries(const LayerRows& rows, std::uint32_t query_head) {
  const std::size_t size = std::size_t{rows.tokens} * rows.head_dim;
  std::vector<float> queries(&rows.queries[query_head * size], &rows.queries[query_head * size] + size);
  undo_rope(rows.rope, rows.first_position, rows.head_dim, queries);
  return queries;
}

inline Calibration calibration_of(const LayerRows& rows) {
  Calibrator calibrator(rows.layer + 1, rows.query_heads, rows.rope);
  for (std::uint32_t head = 0; rows.tokens > 0 && head < rows.query_heads; ++head) {
    calibrator.add(rows.layer, head, unturned_queries(rows, head), rows.head_dim);
  }
  return calibrator.finish();
}

inline constexpr ScorerNeeds kEverything = {
    .attention_sums = true, .query_moments = true, .repeat_attention = true, .calibration = true};

// Owns the pages; unused slots of last pages are NaN, which no scorer may let through. Hands over what `needs`
// name, where the queries of all tokens are there.
template <class Element>
class PagedLayer {
 public:
  explicit PagedLayer(const LayerRows& rows, std::uint32_t block_size = 16, const ScorerNeeds& needs = kEverything)
      : rows_(rows) {
    layer_.tokens = rows.tokens;
    layer_.kv_heads = rows.kv_heads;
    layer_.head_dim = rows.head_dim;
    layer_.block_size = block_size;
    layer_.layer = rows.layer;
    layer_.query_heads = rows.query_heads;
    layer_.window_tokens = rows.window_tokens;
    layer_.queries = rows_.queries;
    const std::size_t half_page = std::size_t{block_size} * rows.head_dim;
    bytes_.assign(2 * half_page * rows.kv_heads * layer_.pages_per_head(), element(std::nanf("")));
    for (std::size_t p = 0; p < std::size_t{rows.kv_heads} * layer_.pages_per_head(); ++p) {
      pages_.push_back({&bytes_[2 * p * half_page], &bytes_[(2 * p + 1) * half_page]});
    }
    for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
      for (std::uint32_t token = 0; token < rows.tokens; ++token) {
        const std::size_t page = std::size_t{head} * layer_.pages_per_head() + token / block_size;
        Element* keys = &bytes_[2 * page * half_page];
        for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
          const std::uint32_t slot = token % block_size;
          keys[c * block_size + slot] = element(rows_.key(head, token, c));
          keys[half_page + slot * rows.head_dim + c] = element(rows_.value(head, token, c));
        }
      }
    }
    layer_.pages = pages_;
    layer_.first_position = rows.first_position;
    layer_.rope = rows.rope;
    layer_.attention_scale = rows.attention_scale;
    if (rows.tokens > 0 && rows.window_tokens == rows.tokens) observe(needs);
  }
  PagedLayer(const PagedLayer&) = delete;

  const LayerKv<Element>& layer() const { return layer_; }
  std::vector<float> score(const Scorer& scorer) const {
    std::vector<float> scores(std::size_t{layer_.kv_heads} * layer_.tokens);
    scorer.score(layer_, scores);
    return scores;
  }

 private:
  void observe(const ScorerNeeds& needs) {
    const std::size_t n = rows_.tokens, d = rows_.head_dim;
    if (needs.attention_sums) {
      attention_sums_.resize(rows_.kv_heads * n);
      for (std::uint32_t head = 0; head < rows_.kv_heads; ++head) {
        add_attention_sums(layer_, head, std::span(attention_sums_).subspan(head * n, n));
      }
    }
    if (needs.query_moments) {
      query_mean_.resize(rows_.query_heads * d);
      query_covariance_.resize(rows_.query_heads * d * d);
      for (std::uint32_t head = 0; head < rows_.query_heads; ++head) {
        query_moments(unturned_queries(rows_, head), rows_.head_dim, std::span(query_mean_).subspan(head * d, d),
                      std::span(query_covariance_).subspan(head * d * d, d * d));
      }
    }
    for (std::size_t i = 0; needs.repeat_attention && i < rows_.repeat_attention.size(); ++i) {
      const auto key = std::span(rows_.keys).subspan(i * d, d);
      const bool finite = std::ranges::all_of(key, [](float value) { return std::isfinite(value); });
      if (!finite) rows_.repeat_attention[i] = std::nanf("");
    }
    if (needs.calibration) calibration_ = calibration_of(rows_);
    layer_.attention_sums = attention_sums_;
    layer_.query_mean = query_mean_;
    layer_.query_covariance = query_covariance_;
    layer_.repeat_attention = rows_.repeat_attention;
    layer_.calibration = &calibration_;
  }

  static Element element(float value) {
    if constexpr (std::is_same_v<Element, Half>) {
      return to_half(value);
    } else {
      return value;
    }
  }

  LayerRows rows_;
  std::vector<float> attention_sums_, query_mean_, query_covariance_;
  Calibration calibration_;
  std::vector<Element> bytes_;
  std::vector<typename LayerKv<Element>::Page> pages_;
  LayerKv<Element> layer_;
};

}  // namespace shale
