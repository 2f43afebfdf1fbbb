// What the cache knows: entries by key and by prefix, and where their bytes are. No I/O, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/object.h"
#include "placement/placement.h"

namespace shale {

// One stored copy of an entry.
struct StoredObject {
  std::uint32_t tier = 0;  // index, fast to slow
  std::shared_ptr<const Manifest> manifest;
  std::uint32_t strata = 0;  // present: strata [0, strata) of the manifest's
  bool base = false;         // the uncompressed copy that undoes losses

  const Method& method() const { return manifest->method; }
  double keep() const;
  std::uint64_t bytes() const;  // chunks present, without the manifest
};

struct Entry {
  EntryKey key;
  EntryKey parent;
  std::uint32_t first_position = 0;
  std::vector<std::int32_t> tokens;
  std::vector<StoredObject> objects;
  Frequency frequency;
  double recompute_s = 0;  // 0: unknown
  std::uint32_t children = 0;
  std::uint32_t pins = 0;  // being read, encoded or moved
  std::string label;

  std::uint32_t end_position() const { return first_position + static_cast<std::uint32_t>(tokens.size()); }
  const StoredObject* find(const Method& method, std::uint32_t tier) const;
  // A copy from which every other configuration can be made.
  const StoredObject* full_copy() const;
  const StoredObject* placed() const;  // the copy that is not only a base; the base when it is the only one
};

// Name of an object's blobs: a copy is identified by its entry and method; the tier says the rest.
Hash128 object_name(const EntryKey& key, const Method& method);

class EntryIndex {
 public:
  Entry* find(const EntryKey& key);
  const Entry* find(const EntryKey& key) const;
  // The new or existing entry.
  Entry& add(const EntryKey& key, const EntryKey& parent, std::uint32_t first_position, std::span<const std::int32_t> tokens);
  // Requires no pins.
  void remove(const EntryKey& key);

  // The chain of entries along `tokens`, root first; all but the last are matched wholly, `matched` tokens of the last.
  struct Link {
    Entry* entry;
    std::uint32_t matched;
  };
  std::vector<Link> match(std::span<const std::int32_t> tokens);

  std::size_t size() const { return entries_.size(); }
  std::vector<Entry*> all();
  std::vector<const Entry*> all() const;
  Status check_integrity() const;

 private:
  std::unordered_map<EntryKey, std::unique_ptr<Entry>> entries_;
  // Children of a parent, ordered by their tokens: the longest common prefix is next to where `tokens` would be.
  std::unordered_map<EntryKey, std::map<std::vector<std::int32_t>, Entry*>> children_;
};

}  // namespace shale
