#include <algorithm>
#include <array>

#include "codec/extent.h"
#include "codec/extent_layout.h"
#include "codec/manifest_frame.h"

namespace shale {
namespace {

// Bounds that no model comes near and that keep every product of sizes below 2^63.
constexpr std::uint32_t kChunkTokensMax = 1 << 16, kPositionMax = 1 << 30, kRankingsMax = 64;

std::size_t rounded(std::uint64_t bytes) { return round_up(bytes, kBlobAlignment); }

std::uint32_t heads_of(const KvGeometry& geometry) { return geometry.layers * geometry.kv_heads; }

// A ranking's name, written in its one way.
bool is_ranking(std::string_view name) {
  const auto method = Method::parse(name);
  return method && !name.empty() && method->ranking() == name && method->check();
}

}  // namespace

Status check_identity(const ExtentManifest& manifest) {
  const auto refuse = [](std::string_view what) { return fail(ErrorCode::kInvalidArgument, "{}", what); };
  const KvGeometry& geometry = manifest.geometry;
  SHALE_TRY(geometry.check());
  SHALE_TRY(manifest.method.check());
  if (manifest.packing > KvPacking::kHeadsTokens ||
      (manifest.packing != KvPacking::kHeadPages && (geometry.opaque() || !manifest.method.is_full()))) {
    return refuse("only exact blocks of known elements have a packing");
  }
  if (manifest.chunk_tokens == 0 || manifest.chunk_tokens > kChunkTokensMax ||
      manifest.chunk_tokens % geometry.block_tokens != 0) {
    return refuse("a chunk is a multiple of the block, and at most 65,536 tokens");
  }
  if (manifest.tokens == 0 || manifest.tokens > kExtentChunksMax * manifest.chunk_tokens ||
      manifest.tokens % geometry.block_tokens != 0) {
    return refuse("an extent has whole blocks and 1 to 16 chunks");
  }
  if (manifest.first_position > kPositionMax) return refuse("the first position is beyond any context");
  if (manifest.keys.size() != manifest.tokens / geometry.block_tokens) return refuse("every block needs a key");
  if (!manifest.token_ids.empty() && manifest.token_ids.size() != manifest.tokens) {
    return refuse("there is a token for every position, or none");
  }
  if (!manifest.windows.empty() && manifest.windows.size() != geometry.layers) {
    return refuse("there is a window for every layer, or none");
  }
  return {};
}

std::uint32_t ExtentManifest::tokens_of(std::uint32_t chunk) const {
  return std::min(chunk_tokens, tokens - chunk * chunk_tokens);
}

std::vector<ExtentManifest::Layers> ExtentManifest::layer_groups() const {
  std::vector<Layers> groups;
  const auto has_window = [&](std::uint32_t layer) { return !windows.empty() && windows[layer] != 0; };
  for (std::uint32_t layer = 0; layer < geometry.layers; ++layer) {
    if (groups.empty() || layer - groups.back().first == layers_per_group ||
        has_window(layer) != has_window(groups.back().first)) {
      groups.push_back({layer, layer});
    }
    groups.back().end = layer + 1;
  }
  return groups;
}

std::uint64_t ExtentManifest::part_bytes(std::uint32_t part) const {
  return part < blobs.size() ? blobs[part].bytes() : rankings[part - blobs.size()].bytes;
}

std::uint32_t ExtentManifest::damaged_chunks(std::uint32_t part, std::span<const std::byte> bytes) const {
  const std::uint32_t all = (1u << chunks()) - 1;
  if (bytes.size() < part_bytes(part)) return all;
  if (part >= blobs.size()) {
    const RankingInfo& ranking = rankings[part - blobs.size()];
    return hash128(bytes.first(ranking.bytes)) == ranking.checksum ? 0 : all;
  }
  std::uint32_t damaged = 0;
  for (std::uint32_t i = 0; i < chunks(); ++i) {
    const BlobChunk& chunk = blobs[part].chunks[i];
    if (hash128(bytes.subspan(chunk.offset, chunk.bytes)) != chunk.checksum) damaged |= 1u << i;
  }
  return damaged;
}

Status ExtentManifest::check_part(std::uint32_t part, std::span<const std::byte> bytes) const {
  if (damaged_chunks(part, bytes) == 0) return {};
  return fail(ErrorCode::kCorrupt, "part {} of extent {} is damaged", part, name().hex());
}

std::vector<std::uint32_t> ExtentManifest::blobs_for(double keep) const {
  std::vector<std::uint32_t> wanted;
  const std::uint32_t end = tiers_for(keep);
  for (std::uint32_t i = 0; i < blobs.size() && blobs[i].tier < end; ++i) wanted.push_back(i);
  return wanted;
}

std::uint64_t ExtentManifest::bytes_for(double keep, std::uint32_t first_chunk, std::uint32_t end_chunk) const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t blob : blobs_for(keep)) {
    for (std::uint32_t chunk = first_chunk; chunk < end_chunk; ++chunk) bytes += blobs[blob].chunks[chunk].bytes;
  }
  return bytes;
}

Hash128 ExtentManifest::name() const {
  Hasher hasher;
  hasher.add(name_space).add(tenant).add(parent).add(std::as_bytes(std::span(keys))).add(method.text());
  for (const BlobInfo& blob : blobs) {
    for (const BlobChunk& chunk : blob.chunks) hasher.add(chunk.checksum);
  }
  hasher.add(tiers.bytes());
  for (const RankingInfo& ranking : rankings) hasher.add(ranking.name).add(ranking.checksum);
  return hasher.finish();
}

AlignedBuffer ExtentManifest::serialize() const {
  ManifestWriter writer(kExtentFormatVersion);
  writer.raw(name_space);
  writer.hash(tenant);
  writer.hash(run);
  writer.text(label);
  writer.number(geometry.element);
  writer.number(packing);
  for (const std::uint32_t number :
       {geometry.layers, geometry.kv_heads, geometry.head_dim, geometry.block_tokens, geometry.opaque_bytes[0],
        geometry.opaque_bytes[1], chunk_tokens, tokens, first_position, layers_per_group}) {
    writer.number(number);
  }
  writer.text(method.text());
  writer.raw(parent);
  writer.raw(std::as_bytes(std::span(keys)));
  writer.array(std::span(token_ids));
  writer.array(std::span(windows));
  writer.raw(tiers.bytes());
  writer.number(static_cast<std::uint32_t>(rankings.size()));
  for (const RankingInfo& ranking : rankings) {
    writer.text(ranking.name);
    writer.hash(ranking.checksum);
  }
  for (const BlobInfo& blob : blobs) {
    for (const BlobChunk& chunk : blob.chunks) {
      writer.number(chunk.bytes);
      writer.hash(chunk.checksum);
    }
  }
  return writer.finish();
}

namespace {

template <std::size_t N>
std::array<std::byte, N> read_array(ManifestReader& reader) {
  std::array<std::byte, N> bytes{};
  const auto from = reader.raw(N);
  std::ranges::copy(from, bytes.begin());
  return bytes;
}

Result<std::vector<RankingInfo>> read_rankings(ManifestReader& reader, const ExtentManifest& manifest) {
  std::vector<RankingInfo> rankings;
  const auto count = reader.number<std::uint32_t>();
  const bool allowed = manifest.method.is_full() && !manifest.geometry.opaque();
  if (count > (allowed ? kRankingsMax : 0)) return corrupt_manifest("its rankings are too many");
  for (std::uint32_t i = 0; i < count; ++i) {
    RankingInfo ranking{reader.text(), TierMap::bytes_of(heads_of(manifest.geometry), manifest.tokens), reader.hash()};
    if (!is_ranking(ranking.name) || std::ranges::count(rankings, ranking.name, &RankingInfo::name) > 0) {
      return corrupt_manifest("its rankings are not written as rankings are");
    }
    rankings.push_back(std::move(ranking));
  }
  return rankings;
}

// Blobs are those that the other fields ask for; the manifest says their chunks' sizes and checksums.
Status read_blobs(ManifestReader& reader, ExtentManifest& manifest) {
  const auto layout = ExtentLayout::make(manifest);
  if (!layout) return corrupt_manifest(layout.error().message);
  constexpr std::size_t kEntryBytes = sizeof(std::uint64_t) + sizeof(Hash128);
  if (reader.left() != layout->blob_count() * manifest.chunks() * kEntryBytes) {
    return corrupt_manifest("chunks of its blobs are missing or too many");
  }
  manifest.blobs = layout->blobs();
  for (BlobInfo& blob : manifest.blobs) {
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < blob.chunks.size(); ++i) {
      BlobChunk& chunk = blob.chunks[i];
      chunk = {.offset = at, .bytes = reader.number<std::uint64_t>(), .checksum = reader.hash()};
      if (!layout->may_have(blob, i, chunk.bytes)) {
        return corrupt_manifest("sizes of its blobs contradict its shape, method or tokens");
      }
      at += rounded(chunk.bytes);
    }
  }
  return {};
}

}  // namespace

Result<ExtentManifest> ExtentManifest::parse(std::span<const std::byte> bytes) {
  SHALE_ASSIGN(const ManifestFrame frame, unframe_manifest(bytes, std::array{kExtentFormatVersion}));
  ManifestReader reader(frame.body);
  ExtentManifest manifest;
  manifest.name_space = read_array<32>(reader);
  manifest.tenant = reader.hash();
  manifest.run = reader.hash();
  manifest.label = reader.text();
  manifest.geometry.element = reader.number<KvElement>();
  manifest.packing = reader.number<KvPacking>();
  KvGeometry& geometry = manifest.geometry;
  for (std::uint32_t* number : {&geometry.layers, &geometry.kv_heads, &geometry.head_dim, &geometry.block_tokens,
                                &geometry.opaque_bytes[0], &geometry.opaque_bytes[1], &manifest.chunk_tokens,
                                &manifest.tokens, &manifest.first_position, &manifest.layers_per_group}) {
    *number = reader.number<std::uint32_t>();
  }
  const std::string method = reader.text();
  const auto parsed = Method::parse(method);
  if (!parsed) return corrupt_manifest(parsed.error().message);
  if (parsed->text() != method) return corrupt_manifest("its method is not written as methods are");
  manifest.method = *parsed;
  if (const Status sound = geometry.check(); !sound) return corrupt_manifest(sound.error().message);
  if (manifest.layers_per_group == 0 || manifest.layers_per_group > geometry.layers) {
    return corrupt_manifest("its layer groups do not fit its layers");
  }
  manifest.parent = read_array<32>(reader);
  manifest.keys = reader.items<BlockKey>(std::min<std::size_t>(manifest.tokens / geometry.block_tokens, reader.left()));
  manifest.token_ids = reader.array<std::int32_t>(manifest.tokens);
  manifest.windows = reader.array<std::uint32_t>(geometry.layers);
  if (const Status sound = check_identity(manifest); !sound) return corrupt_manifest(sound.error().message);
  if (!manifest.method.scorer.empty()) {
    const std::uint32_t heads = heads_of(geometry);
    const auto tiers = TierMap::parse(heads, manifest.tokens, reader.raw(TierMap::bytes_of(heads, manifest.tokens)));
    if (!tiers) return corrupt_manifest(tiers.error().message);
    manifest.tiers = *tiers;
  }
  SHALE_ASSIGN(manifest.rankings, read_rankings(reader, manifest));
  SHALE_TRY(read_blobs(reader, manifest));
  if (!reader.ended_exactly()) return corrupt_manifest("its fields do not fill it");
  return manifest;
}

}  // namespace shale
