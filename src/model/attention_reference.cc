#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/attention.h"

namespace shale {
namespace {

struct Token {
  PageView page;
  std::uint32_t slot;
  bool hole;
};

std::vector<Token> tokens_of(const PagePool& pool, const HeadTable& table) {
  std::vector<Token> tokens;
  for (const PageSlot& slot : table.pages) {
    for (std::uint32_t i = 0; i < slot.count; ++i) {
      tokens.push_back({pool.page(slot.page), i, (slot.holes >> i & 1) != 0});
    }
  }
  return tokens;
}

void attend(std::span<const Token> tokens, const PageShape& page, const float* query, double scale, float* output) {
  const std::uint32_t head_dim = page.head_dim;
  std::vector<double> scores;
  for (const Token& token : tokens) {
    double dot = 0;
    for (std::uint32_t c = 0; c < head_dim; ++c) {
      dot += double{query[c]} * double{to_float(token.page.keys[c * page.page_tokens + token.slot])};
    }
    scores.push_back(token.hole ? -std::numeric_limits<double>::infinity() : dot * scale);
  }
  const double peak = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double weights = 0;
  std::vector<double> sums(head_dim);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const double weight = std::exp(scores[t] - peak);
    weights += weight;
    const Half* value = tokens[t].page.values + std::size_t{tokens[t].slot} * head_dim;
    for (std::uint32_t c = 0; c < head_dim; ++c) sums[c] += weight * double{to_float(value[c])};
  }
  for (std::uint32_t c = 0; c < head_dim; ++c) output[c] = weights > 0 ? static_cast<float>(sums[c] / weights) : 0.0f;
}

}  // namespace

void paged_attention_reference(const PagePool& pool, const AttentionShape& shape,
                               std::span<const AttentionWork> works) {
  const std::uint32_t group = shape.query_heads / shape.kv_heads;
  for (const AttentionWork& work : works) {
    for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
      const std::vector<Token> tokens = tokens_of(pool, work.tables[h / group]);
      for (std::uint32_t q = 0; q < work.query_count; ++q) {
        const std::size_t visible = tokens.size() - work.query_count + q + 1;
        const std::size_t seen = work.window ? std::min<std::size_t>(visible, work.window) : visible;
        attend(std::span(tokens).subspan(visible - seen, seen), pool.shape(),
               work.queries + q * work.query_stride + h * shape.head_dim, double{shape.scale},
               work.output + q * work.output_stride + h * shape.head_dim);
      }
    }
  }
}

}  // namespace shale
