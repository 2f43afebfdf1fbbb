// Which tokens are of which importance, by the scorers and budgets over whole heads.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "codec/context_fixture.h"
#include "scoring/budgets/budget.h"

namespace shale {

// Of tokens [first, end) of one layer, [kv_heads][tokens]. The scorer runs over one page of all tokens, laid out here.
inline std::vector<float> naive_scores(const Context& context, const std::string& scorer, std::uint32_t layer,
                                       std::uint32_t first, std::uint32_t end) {
  const std::uint32_t n = end - first;
  const std::uint32_t block_size = (n + 15) / 16 * 16, d = context.shape.head_dim;
  std::vector<std::vector<Half>> memory;
  std::vector<LayerKv<Half>::Page> pages;
  for (std::uint32_t h = 0; h < context.shape.kv_heads; ++h) {
    const HeadRows& rows = context.heads[layer * context.shape.kv_heads + h];
    auto& page = memory.emplace_back(2 * std::size_t{d} * block_size);
    for (std::uint32_t i = 0; i < n; ++i) {
      for (std::uint32_t c = 0; c < d; ++c) {
        page[std::size_t{c} * block_size + i] = to_half(rows.key(first + i, c));
        page[std::size_t{d} * block_size + std::size_t{i} * d + c] = to_half(rows.value(first + i, c));
      }
    }
  }
  for (const auto& page : memory) pages.push_back({page.data(), page.data() + std::size_t{d} * block_size});
  const AttentionStatistics statistics = observed(context, end - n, end);
  LayerKv<Half> kv{.tokens = n,
                   .kv_heads = context.shape.kv_heads,
                   .head_dim = d,
                   .block_size = block_size,
                   .layer = layer,
                   .pages = pages};
  statistics.hand_over(layer, kv);
  std::vector<float> scores(std::size_t{context.shape.kv_heads} * n);
  (*make_scorer(scorer, kOptions))->score(kv, scores);
  return scores;
}

// Token indices of an extent, tier by tier, in the order in which they must lie in the table.
inline std::vector<std::vector<std::uint32_t>> naive_tiers(const Context& context, const Method& method,
                                                           std::uint32_t index, std::uint32_t first,
                                                           std::uint32_t end) {
  const std::uint32_t n = end - first, layer = index / context.shape.kv_heads, head = index % context.shape.kv_heads;
  std::vector<std::vector<std::uint32_t>> by_tier(method.scorer.empty() ? 1 : kKeepGrid.size());
  if (method.scorer.empty()) {
    by_tier[0].resize(n);
    std::iota(by_tier[0].begin(), by_tier[0].end(), 0u);
    return by_tier;
  }
  const auto scores_of = [&](std::uint32_t l) { return naive_scores(context, method.scorer, l, first, end); };
  if (!method.budget.empty()) {  // each token in the first tier that the budget has it in
    ModelScores all{context.shape.layers, context.shape.kv_heads, n, {}};
    std::vector<float> scores;
    for (std::uint32_t l = 0; l < all.layers; ++l) std::ranges::copy(scores_of(l), std::back_inserter(scores));
    all.scores = scores;
    std::set<std::uint32_t> placed;
    for (std::size_t s = 0; s < kKeepGrid.size(); ++s) {
      const Kept kept = (*make_budget(method.budget))->select(all, kKeepGrid[s], kOptions.window);
      for (std::uint32_t i = 0; i < n; ++i) {
        const bool wanted = kept[std::size_t{index} * n + i] != 0 || s + 1 == kKeepGrid.size();
        if (wanted && placed.insert(i).second) by_tier[s].push_back(i);
      }
    }
    return by_tier;
  }
  const std::vector<float> scores = scores_of(layer);
  const auto order = ranking(std::span(scores).subspan(std::size_t{head} * n, n));
  std::uint32_t rank = 0;
  for (std::size_t s = 0; s < kKeepGrid.size(); ++s) {
    for (; rank < kept_tokens(n, kKeepGrid[s]); ++rank) by_tier[s].push_back(order[rank]);
    std::sort(by_tier[s].begin(), by_tier[s].end());
  }
  return by_tier;
}

}  // namespace shale
