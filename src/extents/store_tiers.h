// The tiers that a store lies on, and how text names them.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "tiers/tiers.h"

namespace shale {

// A tier and who else uses it.
struct StoreTier {
  std::unique_ptr<Tier> tier;
  // Where the tier's index, leases and election lie: the folder of a disk or directory tier, on a file system with
  // locks. Any number of stores, in this process and others, may name the same one. Empty: the tier is this store's
  // alone (memory), or `shared`.
  std::filesystem::path folder = {};
  // Others write here and nothing tells of it (an object store, a remote folder): looked-up blocks that are unknown are
  // asked for behind `pending`, and nothing is ever removed here for others.
  bool shared = false;
  // A folder that cannot be opened is no error of Store::open(): the tier has no room and nothing until it can be.
  bool late = false;
  // What lies in the folder is to outlive a loss of power, and so is its index.
  bool sync = false;
};

// Whether others write there, whom nothing here hears of: StoreTier::shared.
bool is_shared(const TierSpec& spec);

// One tier a URL (src/tiers/tiers.h), fast to slow. Folders of this machine (file:) are shared with all stores that
// name them; those of others (dir:) are asked, as is every scheme but memory:. kInvalidArgument, kIo.
Result<std::vector<StoreTier>> open_store_tiers(const std::vector<std::string_view>& urls, const Clock& clock);
Result<std::vector<StoreTier>> open_store_tiers(const std::vector<TierSpec>& specs, const Clock& clock);

}  // namespace shale
