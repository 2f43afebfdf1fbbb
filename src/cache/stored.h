// Stored objects as they lie on a tier: finding them, writing them whole, reading them back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/object.h"
#include "tier/tier.h"

namespace shale {

// What one manifest on a tier stands for.
struct StoredManifest {
  Hash128 object;
  std::shared_ptr<const Manifest> manifest;  // null when `error` says why it cannot be used
  std::uint32_t strata = 0;                  // whole strata present
  Bits bits = Bits::kAll;                    // of each
  // kNotFound: unfinished, being written or removed. kCorrupt, kMismatch (another version's), kIo: as they say.
  std::optional<Error> error;
  // Unfinished or damaged, and nobody is at work on it: this process alone writes to the tier, or nothing of the object
  // was touched for kAbandonedAfterSeconds. Only what is abandoned may be removed without being asked to.
  bool abandoned = false;
};

// Every object of a tier, of any model. What lacks its manifest or chunks is listed with an error. Manifests are read
// many at a time.
Result<std::vector<StoredManifest>> scan_objects(Tier& tier);

// Reads every chunk of an object and compares checksums: the first that is wrong.
Status verify_object(Tier& tier, const StoredManifest& stored);

// The manifest goes first, so that what remains after a crash is never taken for an object.
Status remove_object(Tier& tier, const Hash128& object);
// Keeps strata [0, strata), the most important tokens, at `bits`. The last chunks go first.
Status remove_chunks(Tier& tier, const Manifest& manifest, std::uint32_t strata, Bits bits);

// Bytes of one object, complete or cut to its first strata and to fewer bits.
struct ObjectBytes {
  std::shared_ptr<const Manifest> manifest;
  std::vector<BlobBytes> chunks;  // manifest->chunks_for(strata, bits)
  std::uint32_t strata = 0;
  Bits bits = Bits::kAll;
  BlobBytes observations = nullptr;  // serialized, of an uncompressed object; null: none
};
// Shares the encoder's buffers.
ObjectBytes object_bytes(std::shared_ptr<const ObjectEncoder::Encoded> encoded, std::uint32_t strata,
                         Bits bits = Bits::kAll);

// Writes chunks and observations, then the manifest, without blocking.
//
// Several processes may write to the tier. An object's name follows from its bytes, so whoever writes the same blobs
// writes the same object: what is found there is as good as written, and only what this writer created is taken back
// when it fails. Where another process takes back what this one has found, the object is no longer whole: that is
// looked for after the manifest is there, and is a failure.
class ObjectWriter {
 public:
  ObjectWriter(Tier& tier, ObjectBytes object);
  // True when all is written or something failed.
  bool poll();
  // Blocks until poll() would be true. On an error nothing that this writer created is left, unless somebody else has
  // completed the object meanwhile. Observations that could not be written are no error: they are a convenience.
  Status finish();
  const ObjectBytes& object() const { return object_; }

 private:
  Status check_found_chunks() const;
  void take_back();

  Tier* tier_;
  ObjectBytes object_;
  Hash128 name_;
  std::vector<std::uint32_t> parts_;  // of the chunks
  std::vector<std::shared_ptr<TierWrite>> chunk_writes_;
  std::shared_ptr<TierWrite> observations_write_;
  std::shared_ptr<TierWrite> manifest_write_;
};

// Reads strata [0, strata) of an object, at `bits`, as they are, for a copy on another tier.
class ObjectReader {
 public:
  ObjectReader(Tier& tier, std::shared_ptr<const Manifest> manifest, std::uint32_t strata, Bits bits);
  bool poll() const;
  // Blocks until poll() would be true. Checksums of chunks are verified; observations are as they are.
  Result<ObjectBytes> finish();

 private:
  ObjectBytes object_;
  std::vector<std::shared_ptr<TierRead>> reads_;
  std::shared_ptr<TierRead> observations_read_;
};

}  // namespace shale
