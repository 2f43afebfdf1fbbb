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

void cut_tier(const Budget& budget, const ModelScores& scores, std::uint32_t window, std::uint32_t tier,
              std::span<std::uint8_t> tier_of) {
  const Kept kept = budget.select(scores, kKeepGrid[tier], window);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] && tier_of[i] == kKeepGrid.size() - 1) tier_of[i] = static_cast<std::uint8_t>(tier);
  }
}

}  // namespace shale
