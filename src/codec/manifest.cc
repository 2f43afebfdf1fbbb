#include <algorithm>
#include <array>

#include "codec/layout.h"
#include "codec/manifest_frame.h"
#include "codec/object.h"

namespace shale {
namespace {

// Bounds that no model comes near and that keep every product of sizes below 2^63.
constexpr std::uint32_t kLayersMax = 1 << 10, kHeadsMax = 1 << 10, kHeadDimMax = 1 << 12, kTokensMax = 1 << 26;
// Part of what keys are hashes of: entries keep their names, and their measurements, when the format changes.
constexpr std::uint64_t kKeyVersion = 2;

bool within(std::uint32_t value, std::uint32_t most) { return value >= 1 && value <= most; }

Status check_shape(const PageShape& shape) {
  const bool page =
      shape.page_tokens == 8 || shape.page_tokens == 16 || shape.page_tokens == 32 || shape.page_tokens == 64;
  if (!within(shape.layers, kLayersMax) || !within(shape.kv_heads, kHeadsMax) || !within(shape.head_dim, kHeadDimMax) ||
      shape.head_dim % 8 != 0 || !page) {
    return corrupt_manifest("no model has its shape");
  }
  return {};
}

// Under a budget every token of every head is in one stratum; without one heads are alike, which goes without saying.
Status check_head_strata(const Manifest& manifest) {
  if (manifest.method.budget.empty() && manifest.head_strata.empty()) return {};
  const std::size_t heads = manifest.shape.pages_per_slab(), tokens = manifest.tokens.size();
  if (manifest.method.budget.empty() || manifest.head_strata.size() != heads * kKeepGrid.size()) {
    return corrupt_manifest("what its heads keep does not fit its method");
  }
  for (std::size_t head = 0; head < heads; ++head) {
    std::uint64_t all = 0;
    for (std::size_t s = 0; s < kKeepGrid.size(); ++s) all += manifest.head_strata[s * heads + head];
    if (all != tokens) return corrupt_manifest("what its heads keep does not fit its tokens");
  }
  return {};
}

// Chunks must be those that the other fields ask for, in order.
Status check_chunks(const Manifest& manifest, const ObjectLayout& layout) {
  if (!std::ranges::equal(manifest.strata_tokens, layout.strata_tokens()))
    return corrupt_manifest("its strata do not fit its tokens");
  const std::uint32_t layers = manifest.shape.layers;
  const std::uint32_t step = manifest.chunks.empty() ? 0 : manifest.chunks.front().end_layer;
  if (!within(step, layers)) return corrupt_manifest("its layer groups do not fit its layers");
  const std::vector<ChunkInfo> expected = layout.chunks(step);
  if (manifest.chunks.size() != expected.size()) return corrupt_manifest("chunks are missing or too many");
  const auto same = [&](const ChunkInfo& a, const ChunkInfo& b) {
    return a.stratum == b.stratum && a.plane == b.plane && a.first_layer == b.first_layer &&
           a.end_layer == b.end_layer && layout.may_have(a);
  };
  if (std::ranges::equal(manifest.chunks, expected, same)) return {};
  return corrupt_manifest("its table of chunks contradicts its shape, method or tokens");
}

std::uint32_t version_of(PageElement element) {
  return element == PageElement::kInt8 ? kInt8ObjectFormatVersion : kObjectFormatVersion;
}

}  // namespace

EntryKey entry_key(const Fingerprint& fingerprint, const EntryKey& parent, std::span<const std::int32_t> tokens) {
  Hasher hasher;
  hasher.add(kKeyVersion).add(fingerprint.hash).add(parent).add(std::as_bytes(tokens));
  return hasher.finish();
}

Hash128 Manifest::name() const {
  Hasher hasher;
  hasher.add(key).add(method.text());
  for (const ChunkInfo& chunk : chunks) hasher.add(chunk.checksum);
  return hasher.finish();
}

std::uint32_t Manifest::layer_groups() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      chunks, [](const ChunkInfo& chunk) { return chunk.stratum == 0 && chunk.plane == kBasePlane; }));
}

std::uint32_t Manifest::strata_for(double keep) const {
  const std::uint32_t wanted = kept_tokens(static_cast<std::uint32_t>(tokens.size()), keep);
  const auto reaches = std::lower_bound(strata_tokens.begin(), strata_tokens.end(), wanted);
  return static_cast<std::uint32_t>(std::min(reaches - strata_tokens.begin() + 1, std::ssize(strata_tokens)));
}

std::uint64_t Manifest::bytes_for(double keep, Bits bits) const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t chunk : chunks_for(strata_for(keep), bits)) bytes += chunks[chunk].bytes;
  return bytes;
}

std::vector<std::uint32_t> Manifest::chunks_for(std::uint32_t strata, Bits bits) const {
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t i = 0; i < chunks.size() && chunks[i].stratum < strata; ++i) {
    if (bits == Bits::kAll || chunks[i].plane == kBasePlane) wanted.push_back(i);
  }
  return wanted;
}

bool Manifest::has_refinement() const {
  return std::ranges::any_of(chunks, [](const ChunkInfo& chunk) { return chunk.plane == kRefinementPlane; });
}

AlignedBuffer Manifest::serialize() const {
  ManifestWriter writer(version_of(shape.element));
  writer.hash(key);
  writer.hash(parent);
  writer.hash(fingerprint.hash);
  writer.text(fingerprint.model);
  for (const std::uint32_t number : {shape.layers, shape.kv_heads, shape.head_dim, shape.page_tokens, first_position}) {
    writer.number(number);
  }
  writer.text(method.text());
  writer.array(std::span(tokens));
  writer.array(std::span(strata_tokens));
  writer.array(std::span(head_strata));
  writer.number(static_cast<std::uint32_t>(chunks.size()));
  for (const ChunkInfo& chunk : chunks) {
    writer.number(chunk.stratum);
    writer.number(chunk.plane);
    writer.number(chunk.first_layer);
    writer.number(chunk.end_layer);
    writer.number(chunk.bytes);
    writer.hash(chunk.checksum);
  }
  return writer.finish();
}

Result<Manifest> Manifest::parse(std::span<const std::byte> bytes) {
  Manifest manifest;
  SHALE_ASSIGN(const ManifestFrame frame,
               unframe_manifest(bytes, std::array{kObjectFormatVersion, kInt8ObjectFormatVersion}));
  manifest.shape.element = frame.version == version_of(PageElement::kInt8) ? PageElement::kInt8 : PageElement::kHalf;
  ManifestReader reader(frame.body);
  manifest.key = reader.hash();
  manifest.parent = reader.hash();
  manifest.fingerprint.hash = reader.hash();
  manifest.fingerprint.model = reader.text();
  for (std::uint32_t* number : {&manifest.shape.layers, &manifest.shape.kv_heads, &manifest.shape.head_dim,
                                &manifest.shape.page_tokens, &manifest.first_position}) {
    *number = reader.number<std::uint32_t>();
  }
  const std::string method = reader.text();
  manifest.tokens = reader.array<std::int32_t>(kTokensMax);
  manifest.strata_tokens = reader.array<std::uint32_t>(kKeepGrid.size());
  manifest.head_strata = reader.array<std::uint32_t>(kKeepGrid.size() * kLayersMax * kHeadsMax);
  const auto chunks = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < chunks && i < 2 * kLayersMax * kKeepGrid.size(); ++i) {
    ChunkInfo& chunk = manifest.chunks.emplace_back();
    chunk.stratum = reader.number<std::uint32_t>();
    chunk.plane = reader.number<std::uint32_t>();
    chunk.first_layer = reader.number<std::uint32_t>();
    chunk.end_layer = reader.number<std::uint32_t>();
    chunk.bytes = reader.number<std::uint64_t>();
    chunk.checksum = reader.hash();
  }
  if (!reader.ended_exactly()) return corrupt_manifest("its fields do not fill it");
  SHALE_TRY(check_shape(manifest.shape));
  if (manifest.first_position > kTokensMax) return corrupt_manifest("its first position is beyond any context");
  if (manifest.key != entry_key(manifest.fingerprint, manifest.parent, manifest.tokens)) {
    return corrupt_manifest("its key is not that of its tokens");
  }
  const auto parsed = Method::parse(method);
  if (!parsed) return corrupt_manifest(parsed.error().message);
  manifest.method = *parsed;
  if (manifest.method.text() != method) return corrupt_manifest("its method is not written as methods are");
  SHALE_TRY(check_head_strata(manifest));
  const auto layout =
      ObjectLayout::make(manifest.shape, manifest.method, static_cast<std::uint32_t>(manifest.tokens.size()), nullptr,
                         manifest.head_strata);
  if (!layout) return corrupt_manifest(layout.error().message);
  SHALE_TRY(check_chunks(manifest, *layout));
  return manifest;
}

}  // namespace shale
