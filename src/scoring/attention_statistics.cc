#include "scoring/attention_statistics.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace shale {

ScorerNeeds operator|(const ScorerNeeds& a, const ScorerNeeds& b) {
  return {.keys = a.keys || b.keys,
          .values = a.values || b.values,
          .last_queries = std::max(a.last_queries, b.last_queries),
          .attention_sums = a.attention_sums || b.attention_sums,
          .query_moments = a.query_moments || b.query_moments,
          .repeat_attention = a.repeat_attention || b.repeat_attention,
          .rope = a.rope || b.rope,
          .calibration = a.calibration || b.calibration};
}

std::string missing_needs(ScorerNeeds needs, std::uint32_t tokens, const AttentionStatistics& statistics,
                          const ModelTraits& model) {
  needs.last_queries = std::min(needs.last_queries, tokens);
  return missing_needs(needs, ScorerNeeds{.keys = true, .values = true} | statistics.given() | model.given());
}

bool AttentionStatistics::empty() const {
  return queries.empty() && attention_sums.empty() && query_mean.empty() && repeat_attention.empty();
}

ScorerNeeds AttentionStatistics::given() const {
  const std::uint32_t queried = queries.empty() ? 0 : window;
  return {.last_queries = queried == tokens && tokens > 0 ? std::numeric_limits<std::uint32_t>::max() : queried,
          .attention_sums = !attention_sums.empty(),
          .query_moments = !query_mean.empty(),
          .repeat_attention = !repeat_attention.empty()};
}

bool AttentionStatistics::consistent() const {
  const std::size_t heads = std::size_t{layers} * query_heads, columns = std::size_t{layers} * kv_heads * tokens;
  const auto sized = [](const std::vector<float>& part, std::size_t size) {
    return part.empty() || part.size() == size;
  };
  return window <= tokens && query_mean.empty() == query_covariance.empty() &&
         sized(queries, heads * window * head_dim) && sized(attention_sums, columns) &&
         sized(query_mean, heads * head_dim) && sized(query_covariance, heads * head_dim * head_dim) &&
         sized(repeat_attention, columns);
}

void AttentionStatistics::hand_over(std::uint32_t index, LayerKv<Half>& layer) const {
  const auto of_layer = [&](const std::vector<float>& part) {
    const std::size_t size = part.size() / layers;
    return std::span(part).subspan(index * size, size);
  };
  if (empty()) return;
  layer.query_heads = query_heads;
  layer.window_tokens = queries.empty() ? 0 : window;
  layer.queries = of_layer(queries);
  layer.attention_sums = of_layer(attention_sums);
  layer.query_mean = of_layer(query_mean);
  layer.query_covariance = of_layer(query_covariance);
  layer.repeat_attention = of_layer(repeat_attention);
}

void AttentionStatistics::merge(AttentionStatistics other) {
  if (empty()) {
    *this = std::move(other);
    return;
  }
  if (queries.empty() || (other.window > window && !other.queries.empty())) {
    window = other.window;
    queries = std::move(other.queries);
  }
  const auto take = [](std::vector<float>& part, std::vector<float>& from) {
    if (part.empty()) part = std::move(from);
  };
  take(attention_sums, other.attention_sums);
  take(query_mean, other.query_mean);
  take(query_covariance, other.query_covariance);
  take(repeat_attention, other.repeat_attention);
}

}  // namespace shale
