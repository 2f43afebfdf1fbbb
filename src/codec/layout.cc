#include "codec/layout.h"

#include <algorithm>

#include "core/aligned_buffer.h"
#include "scoring/scorer.h"

namespace shale {

Result<ObjectLayout> ObjectLayout::make(const PageShape& shape, const Method& method, std::uint32_t tokens,
                                        const CachegenTables* tables) {
  if (tokens == 0) return fail(ErrorCode::kInvalidArgument, "an entry without tokens has nothing to store");
  SHALE_TRY(method.check());
  ObjectLayout layout;
  layout.shape_ = shape;
  layout.tokens_ = tokens;
  layout.full_ = method.is_full();
  layout.ranked_ = !method.scorer.empty();
  if (layout.ranked_) {
    for (const double keep : kKeepGrid) layout.strata_tokens_.push_back(kept_tokens(tokens, keep));
  } else {
    layout.strata_tokens_ = {tokens};
  }
  for (std::uint32_t s = 0; s < layout.strata(); ++s) {
    SHALE_ASSIGN(const std::shared_ptr<const Quantizer> quantizer, make_quantizer(method.quantizer_of(s), tables));
    if (shape.head_dim % quantizer->channel_multiple() != 0) {
      return fail(ErrorCode::kUnsupported, "{} needs a head dimension that is a multiple of {}; this model has {}",
                  quantizer->name(), quantizer->channel_multiple(), shape.head_dim);
    }
    layout.quantizers_.push_back(quantizer);
  }
  return layout;
}

std::size_t ObjectLayout::section_bytes(std::uint32_t stratum, std::uint32_t plane) const {
  const std::size_t bytes =
      plane == kBasePlane ? bitmap_bytes() + quantizer(stratum).base_bytes(stratum_tokens(stratum), shape_.head_dim)
                          : refinement_bytes(stratum);
  return round_up(bytes, kSectionAlignment);
}

std::size_t ObjectLayout::unpacked_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t layers) const {
  const std::size_t heads = std::size_t{layers} * shape_.kv_heads;
  return heads * (full_ ? shape_.pages_for(tokens_) * shape_.page_bytes() : section_bytes(stratum, plane));
}

std::size_t ObjectLayout::chunk_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t layers) const {
  if (!packed(stratum)) return unpacked_bytes(stratum, plane, layers);
  const std::size_t heads = std::size_t{layers} * shape_.kv_heads;
  const double elements = 2.0 * shape_.head_dim * stratum_tokens(stratum);
  const auto coded = static_cast<std::size_t>(elements * quantizer(stratum).bits() / 8);
  return packed_header_bytes(heads) + heads * (bitmap_bytes() + coded);
}

bool ObjectLayout::may_have(const ChunkInfo& chunk) const {
  const std::uint32_t layers = chunk.end_layer - chunk.first_layer;
  if (!packed(chunk.stratum)) return chunk.bytes == unpacked_bytes(chunk.stratum, chunk.plane, layers);
  const std::size_t heads = std::size_t{layers} * shape_.kv_heads;
  const std::size_t most =
      quantizer(chunk.stratum).packed_bytes_max(stratum_tokens(chunk.stratum), shape_.head_dim) + bitmap_bytes();
  return chunk.bytes >= packed_header_bytes(heads) && chunk.bytes <= packed_header_bytes(heads) + heads * most;
}

std::vector<ChunkInfo> ObjectLayout::chunks(std::uint32_t layers_per_group) const {
  std::vector<ChunkInfo> chunks;
  for (std::uint32_t s = 0; s < strata(); ++s) {
    for (std::uint32_t plane = 0; plane < planes(s); ++plane) {
      for (std::uint32_t first = 0; first < shape_.layers; first += layers_per_group) {
        const std::uint32_t end = std::min(shape_.layers, first + layers_per_group);
        chunks.push_back({.stratum = s,
                          .plane = plane,
                          .first_layer = first,
                          .end_layer = end,
                          .bytes = chunk_bytes(s, plane, end - first),
                          .checksum = {}});
      }
    }
  }
  return chunks;
}

std::size_t ObjectLayout::stratum_bytes(std::uint32_t stratum) const {
  std::size_t bytes = 0;
  for (std::uint32_t plane = 0; plane < planes(stratum); ++plane) bytes += chunk_bytes(stratum, plane, shape_.layers);
  return bytes;
}

std::uint32_t layers_per_group(const PageShape& shape, const Method& method, std::uint32_t tokens) {
  constexpr std::size_t kChunkBytes = 256 * 1024;
  const auto layout = ObjectLayout::make(shape, method, tokens);
  if (!layout) return shape.layers;
  std::size_t smallest = layout->chunk_bytes(0, kBasePlane, 1);
  for (std::uint32_t s = 1; s < layout->strata(); ++s) {
    smallest = std::min(smallest, layout->chunk_bytes(s, kBasePlane, 1));
  }
  return static_cast<std::uint32_t>(std::clamp<std::size_t>((kChunkBytes + smallest - 1) / smallest, 1, shape.layers));
}

}  // namespace shale
