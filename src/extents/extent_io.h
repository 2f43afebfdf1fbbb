// Extents as they lie on a tier: the names of their blobs, and writing, reading and removing them whole.
//
// Parts lie under the extent's own name. The manifest lies under the name of its first chunk. So one listing finds what
// begins with a chain's next block, on a tier that nobody keeps an index of. Written last and removed first, it makes
// an extent either whole or absent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/extent.h"
#include "extents/extent_index.h"
#include "tier/tier.h"

namespace shale {

// The object of the manifests of all extents that begin with a chunk of this tag.
Hash128 manifests_object(std::uint64_t tag);
BlobId manifest_blob(std::uint64_t tag, const Hash128& extent);
bool is_manifest(const BlobId& id);
// What a blob occupies as a file; the index counts all tiers so.
std::uint64_t bytes_at_rest(std::uint64_t blob_bytes);

// The index's facts of an extent, but how often it is used.
ExtentFacts facts_of(const ExtentManifest& manifest, const Hash128& realm, double keep, std::uint64_t bytes);
// The keep of the grid that answers for `keep`, in (0, 1], which may have been rounded to a float.
double grid_keep(double keep);
// The parts that hold `keep`, and the rankings: all others are not stored. Ascending.
std::vector<std::uint32_t> stored_parts(const ExtentManifest& manifest, double keep);
// The largest keep of the grid all of whose parts are there; nothing where the extent is not whole at any.
std::optional<double> keep_there(const ExtentManifest& manifest, const std::function<bool(std::uint32_t)>& is_there);
// Bytes of those parts and the serialized manifest.
std::uint64_t bytes_at_rest(const ExtentManifest& manifest, double keep, std::uint64_t manifest_bytes);

// An extent's blobs in memory.
struct ExtentBlobs {
  Hash128 name;
  std::uint64_t tag = 0;         // of its first chunk
  BlobBytes manifest;            // serialized
  std::vector<BlobBytes> parts;  // by number; null: not stored
  std::uint64_t bytes() const;   // at rest
};

// The blobs that hold `keep`, of those that an encoder made; the manifest serialized. Parts go to `buffers` when they
// are let go. Its tag is the caller's to say.
std::shared_ptr<ExtentBlobs> blobs_of(const ExtentManifest& manifest, std::vector<AlignedBuffer> parts, double keep,
                                      BufferPool& buffers);

// Writes an extent to a tier. One thread at a time.
class ExtentWriter {
 public:
  ExtentWriter(Tier& tier, std::shared_ptr<const ExtentBlobs> blobs);
  // True when it is over. Never waits.
  bool poll();
  // Once over.
  const Status& status() const { return status_; }
  // Likewise, where it failed: what it made. Parts that were there already are somebody's.
  std::vector<BlobId> left() const;

 private:
  Tier& tier_;
  std::shared_ptr<const ExtentBlobs> blobs_;
  std::vector<std::shared_ptr<TierWrite>> writes_;  // by part; null where there is none
  std::shared_ptr<TierWrite> manifest_write_;
  Status status_;
  bool over_ = false;
};

// Reads an extent from a tier as it is. One thread at a time.
class ExtentReader {
 public:
  // `verify`: whether checksums are compared.
  ExtentReader(Tier& tier, const Hash128& name, std::uint64_t tag, double keep, bool verify);
  // True when it is over. Never waits, and compares a few parts at a time.
  bool poll();
  // Once over. kCorrupt where a chunk is found damaged, or the manifest, or a part is too short; kNotFound where
  // another extent's manifest lies there; else as reading failed.
  Result<std::shared_ptr<const ExtentBlobs>> finish();
  // Bit by chunk; all where the manifest or a part could not be read.
  std::uint32_t damaged_chunks() const { return damaged_; }

 private:
  bool end(std::unexpected<Error> error);

  Tier& tier_;
  const double keep_;
  const bool verify_;
  std::shared_ptr<ExtentBlobs> blobs_;
  std::shared_ptr<TierRead> manifest_read_;
  std::optional<ExtentManifest> manifest_;
  std::vector<std::shared_ptr<TierRead>> reads_;  // by part
  std::uint32_t damaged_ = 0;
  Status status_;
};

// These block. Whether the parts, or manifest and parts, lie there as they were written: kNotFound, kCorrupt, kIo.
Status verify_parts(Tier& tier, const ExtentManifest& manifest, double keep);
Status verify_extent(Tier& tier, const Hash128& name, std::uint64_t tag, double keep);

// Reads the blobs, some at once, and shows them in their order. Blocks.
void read_blobs(Tier& tier, std::span<const BlobId> ids,
                const std::function<void(const BlobId&, const Result<BlobBytes>&)>& visit);

// Blocks. What is not there is no error.
Status remove_extent(Tier& tier, const Hash128& name, std::uint64_t tag);

}  // namespace shale
