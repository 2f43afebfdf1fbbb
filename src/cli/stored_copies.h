// What lies in the cache folder and on the remote, of any model: read from the stored objects alone, no weights needed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/catalogue.h"
#include "cache/stored.h"
#include "cli/cli11_fwd.h"
#include "cli/output.h"
#include "cli/serving.h"

namespace shale {

// One sound object on one tier.
struct StoredCopy {
  Tier* tier = nullptr;
  StoredManifest stored;  // never with an error
  std::string label;      // for people: a file's name; empty where nobody knows

  const Manifest& manifest() const { return *stored.manifest; }
  StoredObject object() const;
};

// An object that cannot be used, and why.
struct BrokenObject {
  Tier* tier = nullptr;
  Hash128 object;
  std::string what;
  bool abandoned = false;  // as StoredManifest's
};

struct StoredListing {
  std::vector<std::unique_ptr<Tier>> tiers;
  std::map<Hash128, std::unique_ptr<Catalogue>> catalogues;  // by fingerprint, where the folder has one
  std::vector<StoredCopy> copies;                            // by model, then entry's first position, then key
  std::vector<BrokenObject> broken;                          // damaged, unreadable now, or of another version
  std::vector<BrokenObject> unfinished;  // what a writer left when it was killed, or is writing or removing now
};

// The options that every `cache` command has.
struct StoredOptions {
  TierChoice tiers;
  OutputOptions output;
};
void add_stored_options(CLI::App& command, StoredOptions& options);

Result<StoredListing> list_stored(const TierChoice& choice);

// Entries whose key begins with `prefix` (at least 4 digits), each copy. kNotFound; kInvalidArgument when it fits
// several entries or is no key.
Result<std::vector<const StoredCopy*>> find_entry(const StoredListing& listing, std::string_view prefix);

// The copies of the entry and of every entry that was computed on top of it, which nothing could reach without it.
std::vector<const StoredCopy*> with_descendants(const StoredListing& listing, const EntryKey& key);

struct Removed {
  std::size_t objects = 0;
  std::uint64_t bytes = 0;
};
// With what the catalogue knows of their entries. Stops between objects when interrupted (kCancelled); kBusy where
// another process holds the folder.
Result<Removed> remove_copies(const StoredListing& listing, const std::vector<const StoredCopy*>& copies,
                              Progress& progress);

Json to_json(const StoredCopy& copy);

}  // namespace shale
