#include "store/store_tiers.h"

#include <algorithm>

#include "tier/tiers.h"

namespace shale {

Result<std::vector<StoreTier>> open_store_tiers(const std::vector<std::string_view>& urls, const Clock& clock) {
  const std::vector<TierScheme> schemes = tier_schemes();
  SHALE_ASSIGN(std::vector<TierSpec> specs, parse_tiers(urls));
  std::vector<StoreTier> tiers;
  for (TierSpec& spec : specs) {
    const bool local = std::ranges::find(schemes, spec.scheme, &TierScheme::scheme)->local_folder;
    spec.several_writers = local;
    StoreTier& tier = tiers.emplace_back();
    if (local) tier.folder = spec.place;
    tier.shared = !local && !spec.place.empty();
    SHALE_ASSIGN(tier.tier, make_tier(spec, clock));
  }
  return tiers;
}

}  // namespace shale
