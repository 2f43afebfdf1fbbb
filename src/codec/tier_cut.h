// Scores to importance tiers: cuts at the keeps of kKeepGrid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/method.h"
#include "scoring/budgets/budget.h"

namespace shale {

// One head's tokens by its own scores: of tier t and below are the best kept_tokens(tokens, kKeepGrid[t]).
void cut_head(std::span<const float> scores, std::span<std::uint8_t> tier_of);

// Puts into a tier what the budget keeps at its keep and no tier before has. `tier_of`, [layers][kv_heads][tokens],
// says the last tier of tokens that are in none yet; `window` is the scorer's.
void cut_tier(const Budget& budget, const ModelScores& scores, std::uint32_t window, std::uint32_t tier,
              std::span<std::uint8_t> tier_of);

}  // namespace shale
