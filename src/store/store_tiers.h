// Tiers of a store from text.
#pragma once

#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "store/store.h"
#include "tiers/tiers.h"

namespace shale {

// One tier a URL (src/tiers/tiers.h), fast to slow. Folders of this machine (file:) are shared with all stores that
// name them; those of others (dir:) are asked, as is every scheme but memory:. kInvalidArgument, kIo.
Result<std::vector<StoreTier>> open_store_tiers(const std::vector<std::string_view>& urls, const Clock& clock);
Result<std::vector<StoreTier>> open_store_tiers(const std::vector<TierSpec>& specs, const Clock& clock);

}  // namespace shale
