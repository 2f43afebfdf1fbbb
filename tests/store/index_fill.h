// An index without what it tells of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "core/error.h"
#include "store/store_core.h"

namespace shale::testing {

// Replaces the snapshot of the folder of a tier by one that tells of `chains` chains, whose blocks `keys(i)` names, as
// if the unnamed tenant had saved them exactly in extents of 16 chunks. A store that opens it finds them and cannot
// load them.
inline Status fill_index(const StoreOptions& options, const std::filesystem::path& tier_folder, std::size_t chains,
                         const std::function<std::vector<BlockKey>(std::size_t)>& keys) {
  const Hash128 realm = realm_of(options, {});
  const std::uint32_t chunk_blocks = options.chunk_tokens / options.geometry.block_tokens;
  const std::size_t extent_blocks = std::size_t{chunk_blocks} * kChunksMax;
  return IndexFolder::write_snapshot_file(tier_folder, [&](const IndexFolder::Visit& add) {
    IndexRecord record;
    record.type = IndexRecord::Type::kStored;
    record.realm = {realm, {}};
    for (std::size_t chain = 0; chain < chains; ++chain) {
      const std::vector<BlockKey> all = keys(chain);
      for (std::size_t first = 0; first < all.size(); first += extent_blocks) {
        const auto extent = std::span(all).subspan(first, std::min(extent_blocks, all.size() - first));
        record.facts = {};
        record.facts.name = hash128(std::as_bytes(extent));
        record.facts.bytes =
            options.geometry.bytes(static_cast<std::uint32_t>(extent.size()) * options.geometry.block_tokens);
        name_chunks(extent, realm, chunk_blocks, record.facts);
        add(record);
      }
    }
  });
}

}  // namespace shale::testing
