// Scores to importance tiers: cuts at the keeps of kKeepGrid.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/ranking.h"
#include "paging/page_shape.h"
#include "scoring/budgets/budget.h"

namespace shale {

// The keeps at which tiers end, ascending; the last one is 1.
using TierEnds = std::array<double, kImportanceTiers>;

// One head's tokens by its own scores: of tier t and below are the best kept_tokens(tokens, kKeepGrid[t]).
void cut_head(std::span<const float> scores, std::span<std::uint8_t> tier_of);

// Puts into a tier what the budget keeps at the tier's end and no tier before has. `tier_of`,
// [layers][kv_heads][tokens], says the last tier of tokens that are in none yet; `window` is the scorer's.
void cut_tier(const Budget& budget, const ModelScores& scores, std::uint32_t window, const TierEnds& ends,
              std::uint32_t tier, std::span<std::uint8_t> tier_of);

// The tiers of all of a model's heads: `tier_of` is of the layers that are ranked, tokens of the others are in tier 0.
TierMap tier_map(const PageShape& shape, std::uint32_t tokens, std::span<const std::uint32_t> ranked_layers,
                 std::span<const std::uint8_t> tier_of);

// The same by the scores of the layers that are ranked, as RunRanker cuts them with kKeepGrid.
TierMap cut_tiers(const Budget& budget, const ModelScores& scores, std::uint32_t window, const PageShape& shape,
                  std::span<const std::uint32_t> ranked_layers, const TierEnds& ends = kKeepGrid);

}  // namespace shale
