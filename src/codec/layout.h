// Where things lie in the chunks of an object, all of it computed from shape, method and number of tokens: what a
// manifest says of sizes is checked against this, and no chunk holds a length but those of quantizers that pack, which
// say where their sections end. Format: docs/formats/object.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/object.h"
#include "codec/packed_chunk.h"
#include "paging/page_shape.h"

namespace shale {

// A section is what one (layer, KV head) has in one chunk; sections begin at multiples of it.
inline constexpr std::size_t kSectionAlignment = 64;

class ObjectLayout {
 public:
  // kInvalidArgument for unknown names or no tokens, kUnsupported for a head dimension that the quantizer cannot take.
  // `tables`, for quantizers that need them, must outlive the layout; without, they are only laid out. What each head
  // has of each stratum under a budget is only known once tokens are ranked: `head_strata` (Manifest) says it; without,
  // all heads are laid out alike, which is about what it takes in all.
  static Result<ObjectLayout> make(const PageShape& shape, const Method& method, std::uint32_t tokens,
                                   const CachegenTables* tables = nullptr,
                                   std::span<const std::uint32_t> head_strata = {});

  const PageShape& shape() const { return shape_; }
  std::uint32_t tokens() const { return tokens_; }
  bool full() const { return full_; }      // pages as they are
  bool ranked() const { return ranked_; }  // several strata, positions stored
  const Quantizer& quantizer(std::uint32_t stratum) const { return *quantizers_[stratum]; }

  std::uint32_t strata() const { return static_cast<std::uint32_t>(strata_tokens_.size()); }
  std::span<const std::uint32_t> strata_tokens() const { return strata_tokens_; }  // cumulative, mean over heads
  // Of head `index` (PageShape::page_index), and of the one that has most.
  std::uint32_t stratum_tokens(std::uint32_t stratum, std::uint32_t index) const {
    return head_strata_.empty() ? mean_tokens(stratum) : head_strata_[stratum * heads() + index];
  }
  std::uint32_t stratum_tokens_max(std::uint32_t stratum) const;

  // Bytes of the position bitmap at the head of a section; 0 where positions are implied.
  std::size_t bitmap_bytes() const { return ranked_ ? (std::size_t{tokens_} + 63) / 64 * 8 : 0; }
  // What a stratum has chunks of: its base, and where its quantizer's bits nest their refinement.
  std::uint32_t planes(std::uint32_t stratum) const;
  // Whether chunks of the stratum are packed: their sections then take what they turn out to take.
  bool packed(std::uint32_t stratum) const { return !full_ && quantizer(stratum).packs(); }
  // Where the section of head `index` lies in a chunk whose first layer is `first_layer`. Not for full objects; of
  // packed strata, before packing.
  struct Section {
    std::size_t offset = 0, bytes = 0;
  };
  Section section(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first_layer, std::uint32_t index) const;
  // All of a chunk's, in order.
  std::vector<CodedSection> sections(const ChunkInfo& chunk) const;
  // Of layers [first, end); of packed strata, before packing: chunk_bytes() is then about what is left of it.
  std::size_t unpacked_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first, std::uint32_t end) const;
  std::size_t chunk_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first, std::uint32_t end) const;
  // Whether a chunk may have so many bytes.
  bool may_have(const ChunkInfo& chunk) const;
  // All of an object, in the manifest's order and without checksums, in groups of `layers_per_group` layers.
  std::vector<ChunkInfo> chunks(std::uint32_t layers_per_group) const;
  // Of all planes, of all layers.
  std::size_t stratum_bytes(std::uint32_t stratum) const;

 private:
  ObjectLayout() = default;
  std::uint32_t heads() const { return shape_.pages_per_slab(); }
  std::uint32_t mean_tokens(std::uint32_t stratum) const {
    return strata_tokens_[stratum] - (stratum == 0 ? 0 : strata_tokens_[stratum - 1]);
  }
  std::size_t section_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t tokens) const;

  PageShape shape_;
  std::uint32_t tokens_ = 0;
  bool full_ = false, ranked_ = false;
  std::vector<std::shared_ptr<const Quantizer>> quantizers_;  // by stratum
  std::vector<std::uint32_t> strata_tokens_;
  std::vector<std::uint32_t> head_strata_;  // [strata][layers · kv_heads], or empty: all heads alike
  // Where the sections of heads begin and the last one ends, if all were in one chunk: by stratum, then plane; or
  // empty.
  std::vector<std::vector<std::size_t>> section_starts_;
};

}  // namespace shale
