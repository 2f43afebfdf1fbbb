// What lies on a tier, of any namespace and tenant, from the manifests alone: for whoever looks after a folder without
// being an engine. All of it blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/extent.h"
#include "core/error.h"
#include "extents/index_folder.h"
#include "tier/tier.h"

namespace shale {

// An extent on a tier, or what is left of one, or an object of another version.
struct ScannedExtent {
  Hash128 name;                                    // where there is no manifest: of the object
  std::shared_ptr<const ExtentManifest> manifest;  // null where `error` says why it cannot be used
  double keep = 1;                                 // whose importance tiers are all there
  std::uint64_t bytes = 0;                         // at rest
  std::vector<BlobId> blobs;                       // a manifest first
  // kNotFound: without a manifest, being written or removed. kCorrupt: damaged, or a part is missing. kMismatch:
  // another version's. kIo.
  std::optional<Error> error;

  std::uint64_t tag() const;  // requires a manifest
};

// Every extent and object of the tier, by name. Manifests are read many at a time.
Result<std::vector<ScannedExtent>> scan_extents(Tier& tier);

// Whether nobody will finish it: it is damaged, or nobody has touched any of it for kAbandonedAfterSeconds. Only that
// may be removed without being asked to; what another version wrote is its own.
bool is_abandoned(const Tier& tier, const ScannedExtent& extent);

// Reads all that is there of an extent with a manifest and compares every checksum: the first that is wrong.
Status verify_extent(Tier& tier, const ScannedExtent& extent);

// Removes it, the manifest first. Stores that have `folder` open, where the tier has one, hear of it.
Status remove_scanned(Tier& tier, IndexFolder* folder, const ScannedExtent& extent);

}  // namespace shale
