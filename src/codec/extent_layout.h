// Where things lie in the blobs of an extent. All of it follows from what a manifest says before its table of blobs,
// which is checked against this; no blob holds a length but those of quantizers that pack. Format:
// docs/formats/extent.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/extent.h"
#include "quantizers/packed_chunk.h"

namespace shale {

// The alignment of chunks, and of the sections in them.
inline constexpr std::size_t kBlobAlignment = 64;

// kInvalidArgument for what the caller of an encoder says where it contradicts itself.
Status check_identity(const ExtentManifest& manifest);

// As many layers as it takes to bring the smallest tier's base blob to 256 KiB, where the extent is large enough.
// kInvalidArgument for a method that is not known.
Result<std::uint32_t> suitable_layers_per_group(const KvGeometry& geometry, const Method& method, std::uint32_t tokens);

class ExtentLayout {
 public:
  // Goes by the manifest's geometry, method, tokens, windows, layers_per_group and, with a scorer, tiers; it need not
  // stay. kInvalidArgument for a method that is not known, kUnsupported for one that cannot take its geometry.
  // `tables`, for quantizers that need them, must outlive the layout; without, they are only laid out.
  static Result<ExtentLayout> make(const ExtentManifest& manifest, const CachegenTables* tables = nullptr);

  bool exact() const { return exact_; }
  bool ranked() const { return ranked_; }
  const std::vector<ExtentManifest::Layers>& groups() const { return groups_; }
  std::uint32_t tiers() const { return static_cast<std::uint32_t>(quantizers_.size()); }
  const Quantizer& quantizer(std::uint32_t tier) const { return *quantizers_[tier]; }
  bool packed(std::uint32_t tier) const { return !exact_ && quantizer(tier).packs(); }
  std::uint32_t planes(std::uint32_t tier) const { return planes_[tier]; }

  std::size_t blob_count() const;
  // The number of a blob: by tier, then plane, then group.
  std::uint32_t blob(std::uint32_t tier, std::uint32_t plane, std::uint32_t group) const;
  // All blobs in order, with chunks' bytes before packing and no offsets or checksums.
  std::vector<BlobInfo> blobs() const;
  // A section of lossy methods, in a blob whose first layer is `first_layer`.
  CodedSection section(std::uint32_t tier, std::uint32_t plane, std::uint32_t chunk, std::uint32_t head,
                       std::uint32_t first_layer) const;
  std::vector<CodedSection> sections(const BlobInfo& blob, std::uint32_t chunk) const;
  // Bytes of a chunk in a blob, before packing.
  std::size_t unpacked_bytes(const BlobInfo& blob, std::uint32_t chunk) const;
  // Whether a chunk may take so many.
  bool may_have(const BlobInfo& blob, std::uint32_t chunk, std::uint64_t bytes) const;

 private:
  ExtentLayout() = default;
  std::size_t section_bytes(std::uint32_t tier, std::uint32_t plane, std::uint32_t tokens) const;
  std::uint32_t section_tokens(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head) const;
  void place_sections(const TierMap& tiers);

  KvGeometry geometry_;
  std::uint32_t tokens_ = 0, chunk_tokens_ = 0, chunks_ = 0;
  bool exact_ = false, ranked_ = false;
  std::vector<ExtentManifest::Layers> groups_;
  std::vector<std::shared_ptr<const Quantizer>> quantizers_;  // by tier
  std::vector<std::uint32_t> planes_;                         // likewise
  // Methods with a scorer alone: tokens of (tier, chunk, head), and where sections would begin and the last one end if
  // all heads were in one blob, [tier][plane][chunk][heads + 1].
  std::vector<std::uint32_t> section_tokens_;
  std::vector<std::size_t> section_starts_;
};

}  // namespace shale
