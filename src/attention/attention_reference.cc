#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/attention.h"

namespace shale {
namespace {

// One token of a page.
struct Token {
  const std::byte* page;
  std::uint32_t slot;
  bool hole;

  double key(const PageShape& shape, std::uint32_t c) const {
    const std::size_t at = c * shape.block_size + slot;
    if (shape.element == PageElement::kHalf) return double{to_float(PageView::of(page, shape).keys[at])};
    const auto view = Int8PageView::of(page, shape);
    return view.keys[at] * double{to_float(view.key_scales[c / kScaleChannels * shape.block_size + slot])};
  }
  double value(const PageShape& shape, std::uint32_t c) const {
    const std::size_t at = std::size_t{slot} * shape.head_dim + c;
    if (shape.element == PageElement::kHalf) return double{to_float(PageView::of(page, shape).values[at])};
    const auto view = Int8PageView::of(page, shape);
    return view.values[at] * double{to_float(view.value_scales[c / kScaleChannels * shape.block_size + slot])};
  }
};

std::vector<Token> tokens_of(const PagePool& pool, const HeadTable& table) {
  std::vector<Token> tokens;
  for (const PageSlot slot : table.pages) {
    for (std::uint32_t i = 0; i < slot.count; ++i) {
      tokens.push_back({pool.host_view().bytes(slot.page).data(), i, (slot.holes >> i & 1) != 0});
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
      dot += double{query[c]} * token.key(page, c);
    }
    scores.push_back(token.hole ? -std::numeric_limits<double>::infinity() : dot * scale);
  }
  const double peak = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double weights = 0;
  std::vector<double> sums(head_dim);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const double weight = std::exp(scores[t] - peak);
    weights += weight;
    for (std::uint32_t c = 0; c < head_dim; ++c) sums[c] += weight * tokens[t].value(page, c);
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
