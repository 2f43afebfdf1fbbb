#include "codec/tier_cut.h"

#include "scoring/scorer.h"

namespace shale {

void cut_head(std::span<const float> scores, std::span<std::uint8_t> tier_of) {
  const std::vector<std::uint32_t> order = ranking(scores);
  std::uint32_t rank = 0;
  for (std::size_t tier = 0; tier < kKeepGrid.size(); ++tier) {
    const std::uint32_t kept = kept_tokens(static_cast<std::uint32_t>(scores.size()), kKeepGrid[tier]);
    for (; rank < kept; ++rank) tier_of[order[rank]] = static_cast<std::uint8_t>(tier);
  }
}

void cut_tier(const Budget& budget, const ModelScores& scores, std::uint32_t window, const TierEnds& ends,
              std::uint32_t tier, std::span<std::uint8_t> tier_of) {
  const Kept kept = budget.select(scores, ends[tier], window);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] && tier_of[i] == kImportanceTiers - 1) tier_of[i] = static_cast<std::uint8_t>(tier);
  }
}

TierMap tier_map(const PageShape& shape, std::uint32_t tokens, std::span<const std::uint32_t> ranked_layers,
                 std::span<const std::uint8_t> tier_of) {
  TierMap tiers(shape.pages_per_block(), tokens);
  auto tier = tier_of.begin();
  for (const std::uint32_t layer : ranked_layers) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      for (std::uint32_t token = 0; token < tokens; ++token) tiers.set(shape.page_index(layer, head), token, *tier++);
    }
  }
  return tiers;
}

TierMap cut_tiers(const Budget& budget, const ModelScores& scores, std::uint32_t window, const PageShape& shape,
                  std::span<const std::uint32_t> ranked_layers, const TierEnds& ends) {
  std::vector<std::uint8_t> tier_of(scores.scores.size(), kImportanceTiers - 1);
  for (std::uint32_t tier = 0; tier + 1 < kImportanceTiers; ++tier) {
    cut_tier(budget, scores, window, ends, tier, tier_of);
  }
  return tier_map(shape, scores.tokens, ranked_layers, tier_of);
}

}  // namespace shale
