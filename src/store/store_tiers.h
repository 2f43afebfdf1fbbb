// The tiers of a store, named by URLs.
#pragma once

#include <string_view>
#include <vector>

#include "store/store.h"

namespace shale {

// One tier a URL, in their order, fast to slow (tier/tiers.h). Folders of this machine (file:) are indexed together
// with every other store that opens them; mounted ones (dir:) are shared tiers; memory is the store's alone. `clock`
// must outlive them. kInvalidArgument as parse_tiers(); kIo, kBusy.
Result<std::vector<StoreTier>> open_store_tiers(const std::vector<std::string_view>& urls, const Clock& clock);

}  // namespace shale
