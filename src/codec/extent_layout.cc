#include "codec/extent_layout.h"

#include <algorithm>
#include <cmath>

namespace shale {
namespace {

constexpr std::size_t kBlobBytes = 256 * 1024;
constexpr std::uint32_t kPlanesMax = 2;

}  // namespace

Result<std::uint32_t> suitable_layers_per_group(const KvGeometry& geometry, const Method& method,
                                                std::uint32_t tokens) {
  double smallest = static_cast<double>(geometry.block_bytes()) * tokens / geometry.block_tokens;
  if (!method.is_full()) {
    const std::uint32_t tiers = method.scorer.empty() ? 1 : kImportanceTiers;
    double kept_before = 0;
    for (std::uint32_t tier = 0; tier < tiers; ++tier) {
      SHALE_ASSIGN(const std::unique_ptr<Quantizer> quantizer, make_quantizer(method.quantizer_of(tier)));
      const double kept = tiers == 1 ? 1 : kKeepGrid[tier];
      const double elements = 2.0 * geometry.kv_heads * geometry.head_dim * tokens * (kept - kept_before);
      smallest = std::min(smallest, elements * quantizer->bits() / 8);
      kept_before = kept;
    }
  }
  const double layers = std::ceil(kBlobBytes / std::max(1.0, smallest));
  return static_cast<std::uint32_t>(std::clamp<double>(layers, 1, geometry.layers));
}

Result<ExtentLayout> ExtentLayout::make(const ExtentManifest& manifest, const CachegenTables* tables) {
  const Method& method = manifest.method;
  const KvGeometry& geometry = manifest.geometry;
  SHALE_TRY(method.check());
  ExtentLayout layout;
  layout.geometry_ = geometry;
  layout.tokens_ = manifest.tokens;
  layout.chunk_tokens_ = manifest.chunk_tokens;
  layout.chunks_ = manifest.chunks();
  layout.exact_ = method.is_full();
  layout.ranked_ = !method.scorer.empty();
  layout.groups_ = manifest.layer_groups();
  SHALE_TRY(check_encodable(geometry, method));
  for (std::uint32_t tier = 0; tier < (layout.ranked_ ? kImportanceTiers : 1); ++tier) {
    SHALE_ASSIGN(const std::shared_ptr<const Quantizer> quantizer, make_quantizer(method.quantizer_of(tier), tables));
    const bool nests = !layout.exact_ && quantizer->refinement_bytes(kBlockTokens, geometry.head_dim) > 0;
    layout.planes_.push_back(nests ? 2 : 1);
    layout.quantizers_.push_back(quantizer);
  }
  if (layout.ranked_) layout.place_sections(manifest.tiers);
  return layout;
}

void ExtentLayout::place_sections(const TierMap& map) {
  const std::uint32_t heads = map.heads();
  for (std::uint32_t tier = 0; tier < tiers(); ++tier) {
    for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      const std::uint32_t first = chunk * chunk_tokens_, last = std::min(tokens_, first + chunk_tokens_);
      for (std::uint32_t head = 0; head < heads; ++head) {
        section_tokens_.push_back(map.count(head, first, last, tier, tier + 1));
      }
    }
  }
  for (std::uint32_t tier = 0; tier < tiers(); ++tier) {
    for (std::uint32_t plane = 0; plane < kPlanesMax; ++plane) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        std::size_t at = 0;
        section_starts_.push_back(at);
        for (std::uint32_t head = 0; head < heads; ++head) {
          at += plane < planes(tier) ? section_bytes(tier, plane, section_tokens(tier, chunk, head)) : 0;
          section_starts_.push_back(at);
        }
      }
    }
  }
}

std::uint32_t ExtentLayout::section_tokens(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head) const {
  if (!ranked_) return std::min(chunk_tokens_, tokens_ - chunk * chunk_tokens_);
  return section_tokens_[(std::size_t{tier} * chunks_ + chunk) * geometry_.layers * geometry_.kv_heads + head];
}

std::size_t ExtentLayout::section_bytes(std::uint32_t tier, std::uint32_t plane, std::uint32_t tokens) const {
  const std::size_t bytes = plane == kBasePlane ? quantizer(tier).base_bytes(tokens, geometry_.head_dim)
                                                : quantizer(tier).refinement_bytes(tokens, geometry_.head_dim);
  return round_up(bytes, kBlobAlignment);
}

std::uint32_t ExtentLayout::blob(std::uint32_t tier, std::uint32_t plane, std::uint32_t group) const {
  std::uint32_t planes_before = plane;
  for (std::uint32_t t = 0; t < tier; ++t) planes_before += planes(t);
  return planes_before * static_cast<std::uint32_t>(groups_.size()) + group;
}

std::size_t ExtentLayout::blob_count() const { return blob(tiers(), 0, 0); }

std::vector<BlobInfo> ExtentLayout::blobs() const {
  std::vector<BlobInfo> blobs;
  for (std::uint32_t tier = 0; tier < tiers(); ++tier) {
    for (std::uint32_t plane = 0; plane < planes(tier); ++plane) {
      for (const ExtentManifest::Layers& group : groups_) {
        BlobInfo& blob = blobs.emplace_back(BlobInfo{tier, plane, group.first, group.end, {}});
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
          blob.chunks.push_back({.offset = 0, .bytes = unpacked_bytes(blob, chunk), .checksum = {}});
        }
      }
    }
  }
  return blobs;
}

CodedSection ExtentLayout::section(std::uint32_t tier, std::uint32_t plane, std::uint32_t chunk, std::uint32_t head,
                                   std::uint32_t first_layer) const {
  const std::uint32_t first = first_layer * geometry_.kv_heads, tokens = section_tokens(tier, chunk, head);
  if (!ranked_) {
    const std::size_t bytes = section_bytes(tier, plane, tokens);
    return {head, tokens, (head - first) * bytes, bytes};
  }
  const std::size_t heads = std::size_t{geometry_.layers} * geometry_.kv_heads;
  const std::size_t* starts = &section_starts_[((tier * kPlanesMax + plane) * chunks_ + chunk) * (heads + 1)];
  return {head, tokens, starts[head] - starts[first], starts[head + 1] - starts[head]};
}

std::vector<CodedSection> ExtentLayout::sections(const BlobInfo& blob, std::uint32_t chunk) const {
  std::vector<CodedSection> sections;
  for (std::uint32_t head = blob.first_layer * geometry_.kv_heads; head < blob.end_layer * geometry_.kv_heads; ++head) {
    sections.push_back(section(blob.tier, blob.plane, chunk, head, blob.first_layer));
  }
  return sections;
}

std::size_t ExtentLayout::unpacked_bytes(const BlobInfo& blob, std::uint32_t chunk) const {
  if (exact_) {
    const std::size_t blocks = section_tokens(0, chunk, 0) / geometry_.block_tokens;
    return geometry_.block_bytes() * blocks * (blob.end_layer - blob.first_layer);
  }
  const CodedSection last =
      section(blob.tier, blob.plane, chunk, blob.end_layer * geometry_.kv_heads - 1, blob.first_layer);
  return last.offset + last.bytes;
}

bool ExtentLayout::may_have(const BlobInfo& blob, std::uint32_t chunk, std::uint64_t bytes) const {
  if (!packed(blob.tier)) return bytes == unpacked_bytes(blob, chunk);
  const std::uint32_t first = blob.first_layer * geometry_.kv_heads, end = blob.end_layer * geometry_.kv_heads;
  const std::size_t least = packed_header_bytes(end - first);
  std::size_t most = least;
  for (std::uint32_t head = first; head < end; ++head) {
    most += quantizer(blob.tier).packed_bytes_max(section_tokens(blob.tier, chunk, head), geometry_.head_dim);
  }
  return bytes >= least && bytes <= most;
}

Status check_encodable(const KvGeometry& geometry, const Method& method) {
  if (method.is_full()) return {};
  if (geometry.opaque()) {
    return fail(ErrorCode::kUnsupported, "opaque blocks are kept exactly; {} cannot be applied to them", method.text());
  }
  for (std::uint32_t tier = 0; tier < (method.scorer.empty() ? 1 : kImportanceTiers); ++tier) {
    SHALE_ASSIGN(const std::unique_ptr<Quantizer> quantizer, make_quantizer(method.quantizer_of(tier)));
    // SIMD kernels work on eight channels at a time.
    const std::uint32_t multiple = std::max(8u, quantizer->channel_multiple());
    if (geometry.head_dim % multiple != 0) {
      return fail(ErrorCode::kUnsupported, "{} needs a head dimension that is a multiple of {}; this model has {}",
                  method.text(), multiple, geometry.head_dim);
    }
  }
  return {};
}

Result<std::uint64_t> extent_bytes(const KvGeometry& geometry, const Method& method, std::uint32_t tokens, double keep,
                                   std::span<const std::uint32_t> windows) {
  SHALE_TRY(geometry.check());
  SHALE_TRY(method.check());
  SHALE_TRY(check_encodable(geometry, method));
  if (method.is_full()) return geometry.bytes(tokens);
  const double windowed = static_cast<double>(std::ranges::count_if(windows, [](auto window) { return window > 0; }));
  double bytes = 0, kept_before = 0;
  for (std::uint32_t tier = 0; tier < (method.scorer.empty() ? 1 : tiers_for(keep)); ++tier) {
    SHALE_ASSIGN(const std::unique_ptr<Quantizer> quantizer, make_quantizer(method.quantizer_of(tier)));
    const double kept = method.scorer.empty() ? 1 : kKeepGrid[tier], share = kept - kept_before;
    // A block's bytes, of which full blocks and tails alike have their share.
    double block = static_cast<double>(quantizer->base_bytes(kBlockTokens, geometry.head_dim));
    if (quantizer->packs()) block = 2.0 * geometry.head_dim * kBlockTokens * quantizer->bits() / 8;
    block += static_cast<double>(quantizer->refinement_bytes(kBlockTokens, geometry.head_dim));
    // Layers with a window are not ranked: tier 0 has all of them.
    const double layers = (geometry.layers - windowed) * share + (tier == 0 ? windowed : 0);
    bytes += layers * geometry.kv_heads * tokens / kBlockTokens * block;
    kept_before = kept;
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace shale
