#include "codec/layout.h"

#include <algorithm>
#include <cassert>

#include "core/aligned_buffer.h"
#include "scoring/scorer.h"

namespace shale {

Result<ObjectLayout> ObjectLayout::make(const PageShape& shape, const Method& method, std::uint32_t tokens,
                                        const CachegenTables* tables, std::span<const std::uint32_t> head_strata) {
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
  if (head_strata.empty()) return layout;

  assert(!method.budget.empty() && head_strata.size() == std::size_t{layout.strata()} * layout.heads());
  layout.head_strata_.assign(head_strata.begin(), head_strata.end());
  for (std::uint32_t s = 0; s < layout.strata(); ++s) {
    for (const std::uint32_t plane : {kBasePlane, kRefinementPlane}) {
      std::vector<std::size_t>& starts = layout.section_starts_.emplace_back(1);
      for (std::uint32_t i = 0; i < layout.heads(); ++i) {
        starts.push_back(starts.back() + layout.section_bytes(s, plane, layout.stratum_tokens(s, i)));
      }
    }
  }
  return layout;
}

std::uint32_t ObjectLayout::stratum_tokens_max(std::uint32_t stratum) const {
  if (head_strata_.empty()) return mean_tokens(stratum);
  return std::ranges::max(std::span(head_strata_).subspan(std::size_t{stratum} * heads(), heads()));
}

std::uint32_t ObjectLayout::planes(std::uint32_t stratum) const {
  return full_ || quantizer(stratum).refinement_bytes(stratum_tokens_max(stratum), shape_.head_dim) == 0 ? 1 : 2;
}

// Of a head that has so many tokens of the stratum.
std::size_t ObjectLayout::section_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t tokens) const {
  const std::size_t bytes = plane == kBasePlane
                                ? bitmap_bytes() + quantizer(stratum).base_bytes(tokens, shape_.head_dim)
                                : quantizer(stratum).refinement_bytes(tokens, shape_.head_dim);
  return round_up(bytes, kSectionAlignment);
}

ObjectLayout::Section ObjectLayout::section(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first_layer,
                                            std::uint32_t index) const {
  const std::uint32_t first = shape_.page_index(first_layer, 0);
  if (head_strata_.empty()) {
    const std::size_t bytes = section_bytes(stratum, plane, mean_tokens(stratum));
    return {(index - first) * bytes, bytes};
  }
  const std::vector<std::size_t>& from = section_starts_[2 * stratum + plane];
  return {from[index] - from[first], from[index + 1] - from[index]};
}

std::vector<CodedSection> ObjectLayout::sections(const ChunkInfo& chunk) const {
  std::vector<CodedSection> sections;
  for (std::uint32_t i = shape_.page_index(chunk.first_layer, 0); i < shape_.page_index(chunk.end_layer, 0); ++i) {
    const auto [offset, bytes] = section(chunk.stratum, chunk.plane, chunk.first_layer, i);
    sections.push_back({i, stratum_tokens(chunk.stratum, i), offset, bytes});
  }
  return sections;
}

std::size_t ObjectLayout::unpacked_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first,
                                         std::uint32_t end) const {
  if (full_) return std::size_t{end - first} * shape_.kv_heads * shape_.pages_for(tokens_) * shape_.page_bytes();
  const Section last = section(stratum, plane, first, shape_.page_index(end, 0) - 1);
  return last.offset + last.bytes;
}

std::size_t ObjectLayout::chunk_bytes(std::uint32_t stratum, std::uint32_t plane, std::uint32_t first,
                                      std::uint32_t end) const {
  if (!packed(stratum)) return unpacked_bytes(stratum, plane, first, end);
  const std::size_t heads = std::size_t{end - first} * shape_.kv_heads;
  std::size_t tokens = 0;
  for (std::uint32_t i = shape_.page_index(first, 0); i < shape_.page_index(end, 0); ++i) {
    tokens += stratum_tokens(stratum, i);
  }
  const double elements = 2.0 * shape_.head_dim * static_cast<double>(tokens);
  const auto coded = static_cast<std::size_t>(elements * quantizer(stratum).bits() / 8);
  return packed_header_bytes(heads) + heads * bitmap_bytes() + coded;
}

bool ObjectLayout::may_have(const ChunkInfo& chunk) const {
  if (!packed(chunk.stratum)) {
    return chunk.bytes == unpacked_bytes(chunk.stratum, chunk.plane, chunk.first_layer, chunk.end_layer);
  }
  const std::uint32_t first = shape_.page_index(chunk.first_layer, 0), end = shape_.page_index(chunk.end_layer, 0);
  const std::size_t least = packed_header_bytes(end - first);
  std::size_t most = least;
  for (std::uint32_t i = first; i < end; ++i) {
    const std::uint32_t tokens = stratum_tokens(chunk.stratum, i);
    most += bitmap_bytes() + quantizer(chunk.stratum).packed_bytes_max(tokens, shape_.head_dim);
  }
  return chunk.bytes >= least && chunk.bytes <= most;
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
                          .bytes = chunk_bytes(s, plane, first, end),
                          .checksum = {}});
      }
    }
  }
  return chunks;
}

std::size_t ObjectLayout::stratum_bytes(std::uint32_t stratum) const {
  std::size_t bytes = 0;
  for (std::uint32_t plane = 0; plane < planes(stratum); ++plane) {
    bytes += chunk_bytes(stratum, plane, 0, shape_.layers);
  }
  return bytes;
}

std::uint32_t layers_per_group(const PageShape& shape, const Method& method, std::uint32_t tokens) {
  constexpr std::size_t kChunkBytes = 256 * 1024;
  const auto layout = ObjectLayout::make(shape, method, tokens);
  if (!layout) return shape.layers;
  std::size_t smallest = layout->chunk_bytes(0, kBasePlane, 0, 1);
  for (std::uint32_t s = 1; s < layout->strata(); ++s) {
    smallest = std::min(smallest, layout->chunk_bytes(s, kBasePlane, 0, 1));
  }
  return static_cast<std::uint32_t>(std::clamp<std::size_t>((kChunkBytes + smallest - 1) / smallest, 1, shape.layers));
}

}  // namespace shale
