// What it costs one head of a context to lose or to code some of its tokens, tier by tier.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/ranking.h"
#include "codec/views/view_pages.h"
#include "quantizers/distortion.h"

namespace shale {

// Of head `index`, counted through all layers, as the last queries see it of each of its query heads, `queries_max` at
// most. `queries`: [layers][query_heads][window][head_dim].
HeadDistortion head_distortion(const ViewPages& pages, std::uint32_t index, std::span<const float> queries,
                               std::uint32_t query_heads, std::uint32_t window, std::uint32_t queries_max,
                               float attention_scale);

// A head's tokens by tier, ascending.
std::vector<std::vector<std::uint32_t>> tokens_by_tier(const TierMap& tiers, std::uint32_t head);

}  // namespace shale
