// What lies in the cache folder and on the remote, of any model: read from the extents alone, no weights needed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "extents/extent_scan.h"
#include "metadata/metadata_store.h"
#include "report/output.h"
#include "runtime/serving.h"

namespace shale {

// A tier that outlives the process.
struct StoredTier {
  std::unique_ptr<Tier> tier;
  std::unique_ptr<IndexFolder> folder;  // where stores tell each other what they do; null where there is none
};

// A run, which is what was saved together, as one method at one keep on one tier.
struct StoredVariant {
  StoredTier* tier = nullptr;
  std::vector<const ScannedExtent*> extents;  // by position; at least one, each with a manifest
  std::string model;                          // its name; where nobody knows it, the first digits of its namespace
  Hash128 parent;                             // the run of the block before the first; zero: none, or not there
  double frequency = 0;                       // of accesses, decayed to the last; of the extent that is used most
  bool pinned = false;                        // by a process that has the tier open; any of its extents

  const ExtentManifest& first() const { return *extents.front()->manifest; }
  const Hash128& run() const { return first().run; }
  double keep() const { return extents.front()->keep; }
  std::uint32_t tokens() const;
  std::uint64_t bytes() const;  // at rest
};

// What cannot be used, and where it is.
struct BrokenExtent {
  StoredTier* tier = nullptr;
  const ScannedExtent* extent = nullptr;

  bool of_another_version() const { return extent->error->code == ErrorCode::kMismatch; }
};

struct StoredListing {
  std::vector<std::unique_ptr<StoredTier>> tiers;
  std::vector<std::unique_ptr<MetadataStore>> metadata_stores;  // one a model, where the folder has one
  std::vector<std::vector<ScannedExtent>> scanned;              // by tier
  std::vector<StoredVariant> variants;                          // by model, first position, run, tier, method, keep
  std::vector<BrokenExtent> broken;                             // damaged, unreadable now, or of another version
  std::vector<BrokenExtent> unfinished;  // what a writer left when it was killed, or is writing or removing now
};

Result<StoredListing> list_stored(const TierChoice& choice);

// The variants of the run whose name begins with `name` (at least 4 digits) or, where there is none, whose label is it
// or begins with it. kNotFound; kInvalidArgument where several runs do.
Result<std::vector<const StoredVariant*>> find_run(const StoredListing& listing, std::string_view name);

// These variants, and all others that nothing could reach without them.
std::vector<const StoredVariant*> with_descendants(const StoredListing& listing,
                                                   std::vector<const StoredVariant*> variants);

struct Removed {
  std::size_t extents = 0;
  std::uint64_t bytes = 0;
};

// Removes variants, with what the metadata store knows of runs that are gone. Stops between extents when interrupted
// (kCancelled).
Result<Removed> remove_variants(const StoredListing& listing, const std::vector<const StoredVariant*>& variants,
                                Progress& progress);

Json to_json(const StoredVariant& variant);

}  // namespace shale
