#include "scoring/row_layer.h"

#include <algorithm>

#include "scoring/attention_sums.h"
#include "scoring/query_moments.h"

namespace shale {

RowLayer::RowLayer(const RowShape& shape, std::span<const float> keys, std::span<const float> values,
                   std::span<const float> queries, const ScorerNeeds& needs, const Rope& rope) {
  layer_.tokens = shape.tokens;
  layer_.kv_heads = shape.kv_heads;
  layer_.head_dim = shape.head_dim;
  layer_.query_heads = shape.query_heads;
  layer_.window_tokens = shape.query_tokens;
  layer_.queries = queries;
  layer_.rope = rope;
  lay_out(keys, values);
  observe(needs);
}

void RowLayer::lay_out(std::span<const float> keys, std::span<const float> values) {
  const std::size_t d = layer_.head_dim, n = layer_.tokens, pages = layer_.pages_per_head();
  const std::size_t block_size = layer_.block_size, half_page = block_size * d;
  memory_.resize(2 * half_page * pages * layer_.kv_heads);
  for (std::size_t row = 0; row < n * layer_.kv_heads; ++row) {
    const std::size_t token = row % n, slot = token % block_size;
    float* page = &memory_[2 * half_page * (row / n * pages + token / block_size)];
    for (std::size_t c = 0; c < d; ++c) page[c * block_size + slot] = keys[row * d + c];
    if (!values.empty()) std::copy_n(&values[row * d], d, page + half_page + slot * d);
  }
  for (std::size_t page = 0; page < pages * layer_.kv_heads; ++page) {
    pages_.push_back({&memory_[2 * half_page * page], &memory_[2 * half_page * page + half_page]});
  }
  layer_.pages = pages_;
}

void RowLayer::observe(const ScorerNeeds& needs) {
  const std::size_t d = layer_.head_dim, n = layer_.tokens;
  if (needs.attention_sums) {
    attention_sums_.resize(n * layer_.kv_heads);
    for (std::uint32_t head = 0; n > 0 && head < layer_.kv_heads; ++head) {
      add_attention_sums(layer_, head, std::span(attention_sums_).subspan(head * n, n));
    }
    layer_.attention_sums = attention_sums_;
  }
  if (!needs.query_moments) return;
  query_mean_.resize(layer_.query_heads * d);
  query_covariance_.resize(layer_.query_heads * d * d);
  for (std::uint32_t head = 0; n > 0 && head < layer_.query_heads; ++head) {
    query_moments(unturned(layer_.queries.subspan(head * n * d, n * d), layer_.rope, layer_.head_dim), layer_.head_dim,
                  std::span(query_mean_).subspan(head * d, d),
                  std::span(query_covariance_).subspan(head * d * d, d * d));
  }
  layer_.query_mean = query_mean_;
  layer_.query_covariance = query_covariance_;
}

std::vector<float> unturned(std::span<const float> queries, const Rope& rope, std::uint32_t head_dim) {
  std::vector<float> turned_back(queries.begin(), queries.end());
  undo_rope(rope, 0, head_dim, turned_back);
  return turned_back;
}

}  // namespace shale
