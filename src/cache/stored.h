// Stored objects as they lie on a tier: finding them, writing them whole, reading them back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/stored_queries.h"
#include "codec/object.h"
#include "tier/tier.h"

namespace shale {

// What one manifest on a tier stands for.
struct StoredManifest {
  Hash128 object;
  std::shared_ptr<const Manifest> manifest;  // null when `error` says why it cannot be used
  std::uint32_t strata = 0;                  // whole strata present
  std::optional<Error> error;
};

// Every object of a tier, of any model. Chunks without a manifest (left by a killed writer) are listed as an object
// with an error.
Result<std::vector<StoredManifest>> scan_objects(Tier& tier);

// Reads every chunk of an object and compares checksums: the first that is wrong.
Status verify_object(Tier& tier, const StoredManifest& stored);

// The manifest goes first, so that what remains after a crash is never taken for an object. By name alone where the
// manifest cannot be read (this lists the tier).
Status remove_object(Tier& tier, const Manifest& manifest);
Status remove_object(Tier& tier, const Hash128& object);
// Keeps strata [0, strata): the most important tokens. The last go first.
Status remove_strata(Tier& tier, const Manifest& manifest, std::uint32_t strata);

// Bytes of one object, complete or cut to its first strata.
struct ObjectBytes {
  std::shared_ptr<const Manifest> manifest;
  std::vector<BlobBytes> chunks;  // strata [0, strata), as in the manifest
  std::uint32_t strata = 0;
};
// Shares the encoder's buffers.
ObjectBytes object_bytes(std::shared_ptr<const ObjectEncoder::Encoded> encoded, std::uint32_t strata);

// Writes chunks, then the manifest, without blocking.
class ObjectWriter {
 public:
  ObjectWriter(Tier& tier, ObjectBytes object);
  // True when all is written or something failed.
  bool poll();
  // Blocks until poll() would be true. On an error nothing of the object is left.
  Status finish();
  const ObjectBytes& object() const { return object_; }

 private:
  Tier* tier_;
  ObjectBytes object_;
  Hash128 name_;
  std::vector<std::shared_ptr<TierWrite>> chunk_writes_;
  std::shared_ptr<TierWrite> manifest_write_;
};

// Reads strata [0, strata) of an object as they are, for a copy on another tier.
class ObjectReader {
 public:
  ObjectReader(Tier& tier, std::shared_ptr<const Manifest> manifest, std::uint32_t strata);
  bool poll() const;
  // Blocks until poll() would be true. Checksums are verified.
  Result<ObjectBytes> finish();

 private:
  ObjectBytes object_;
  std::vector<std::shared_ptr<TierRead>> reads_;
};

}  // namespace shale
