// An index without what it tells of, as large as one likes: for measuring look-ups and opening.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "core/error.h"
#include "store/store.h"

namespace shale {

// Replaces the snapshot of the folder of a tier by one that tells of `chains` chains, whose blocks `keys(i)` names, as
// if the unnamed tenant had saved them exactly in extents of 16 chunks. A store that opens it finds them and cannot
// load them.
Status fill_index(const StoreOptions& options, const std::filesystem::path& tier_folder, std::size_t chains,
                  const std::function<std::vector<BlockKey>(std::size_t)>& keys);

}  // namespace shale
