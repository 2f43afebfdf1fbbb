#include <algorithm>
#include <cassert>
#include <cstring>

#include "codec/encode_steps.h"
#include "codec/extent.h"
#include "codec/extent_layout.h"
#include "codec/views/view_copy.h"

namespace shale {

struct ExtentEncoder::State {
  KvView view;
  ExtentLayout layout;
  std::vector<Ranking> rankings;                         // to be kept beside an exact extent
  std::unique_ptr<BlockCopies<const std::byte>> blocks;  // of an exact extent
  TokenCopies<const std::byte> tokens;                   // of a lossy one
  Encoded encoded;
  std::vector<AlignedBuffer> packed;  // [blobs][chunks], of tiers that pack
  // Pieces of work that are done: chunks of groups or of heads; chunks of blobs.
  std::uint32_t encoded_pieces = 0, sealed_pieces = 0;

  ExtentManifest& manifest() { return encoded.manifest; }
  std::uint32_t chunks() { return manifest().chunks(); }
  std::uint32_t heads() const { return view.geometry.layers * view.geometry.kv_heads; }
  std::uint32_t pieces_to_encode() {
    return chunks() * (layout.exact() ? static_cast<std::uint32_t>(layout.groups().size()) : heads());
  }
  std::uint32_t pieces_to_seal() {
    return layout.exact() ? 0 : chunks() * static_cast<std::uint32_t>(manifest().blobs.size());
  }
  std::size_t piece_bytes() { return view.geometry.bytes(manifest().tokens) / pieces_to_encode(); }
  std::span<std::byte> chunk_of(std::uint32_t blob, std::uint32_t chunk) {
    const BlobChunk& place = manifest().blobs[blob].chunks[chunk];
    return encoded.parts[blob].bytes().subspan(place.offset, place.bytes);
  }

  void lay_out(BufferPool* buffers);
  void copy_group(std::uint32_t group, std::uint32_t chunk);
  void encode_head(std::uint32_t head, std::uint32_t chunk);
  Codes<std::byte> sections(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head);
  void encode_section(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head, HalfBlock& block);
  void seal(std::uint32_t blob, std::uint32_t chunk);
  void join_packed();
  void add_rankings();
};

// Gives every chunk its place and every blob its memory.
void ExtentEncoder::State::lay_out(BufferPool* buffers) {
  manifest().blobs = layout.blobs();
  for (BlobInfo& blob : manifest().blobs) {
    std::uint64_t at = 0;
    for (BlobChunk& chunk : blob.chunks) {
      chunk.offset = at;
      at += round_up(chunk.bytes, kBlobAlignment);
    }
    encoded.parts.push_back(buffers ? buffers->take(blob.bytes()) : AlignedBuffer(blob.bytes()));
  }
  if (!layout.exact()) packed.resize(manifest().blobs.size() * chunks());
}

// Copies and sums what a chunk has of a group's layers, [layers][blocks].
void ExtentEncoder::State::copy_group(std::uint32_t group, std::uint32_t chunk) {
  const KvGeometry& geometry = view.geometry;
  const std::uint32_t first = chunk * manifest().chunk_tokens / geometry.block_tokens;
  const std::uint32_t count = manifest().tokens_of(chunk) / geometry.block_tokens;
  BlobInfo& blob = manifest().blobs[group];
  const std::span<std::byte> bytes = chunk_of(group, chunk);
  std::byte* to = bytes.data();
  for (std::uint32_t layer = blob.first_layer; layer < blob.end_layer; ++layer) {
    for (std::uint32_t block = first; block < first + count; ++block, to += geometry.block_bytes()) {
      blocks->copy(layer, block, geometry.block_tokens, to);
    }
  }
  blob.chunks[chunk].checksum = hash128(bytes);
  if (chunk + 1 < blob.chunks.size()) {
    std::memset(to, 0, blob.chunks[chunk + 1].offset - blob.chunks[chunk].offset - bytes.size());
  }
}

Codes<std::byte> ExtentEncoder::State::sections(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head) {
  const std::uint32_t layer = head / view.geometry.kv_heads;
  const auto group = static_cast<std::uint32_t>(
      std::ranges::find_if(layout.groups(), [&](const auto& each) { return layer < each.end; }) -
      layout.groups().begin());
  const auto section = [&](std::uint32_t plane) {
    const auto place = layout.section(tier, plane, chunk, head, layout.groups()[group].first);
    return chunk_of(layout.blob(tier, plane, group), chunk).subspan(place.offset, place.bytes);
  };
  if (layout.planes(tier) == 1) return {section(kBasePlane)};
  return {section(kBasePlane), section(kRefinementPlane)};
}

void ExtentEncoder::State::encode_head(std::uint32_t head, std::uint32_t chunk) {
  HalfBlock block(view.geometry);
  for (std::uint32_t tier = 0; tier < layout.tiers(); ++tier) encode_section(tier, chunk, head, block);
}

void ExtentEncoder::State::encode_section(std::uint32_t tier, std::uint32_t chunk, std::uint32_t head,
                                          HalfBlock& block) {
  const std::uint32_t kv_heads = view.geometry.kv_heads, head_dim = view.geometry.head_dim;
  const Quantizer& quantizer = layout.quantizer(tier).of_head(head);
  Codes<std::byte> out = sections(tier, chunk, head);
  std::uint32_t filled = 0;
  const auto flush = [&] {
    if (filled == 0) return;
    quantizer.encode(block.converted_from(filled), take_codes(quantizer, filled, head_dim, out));
    filled = 0;
  };
  const auto add = [&](std::uint32_t first, std::uint32_t count) {
    while (count > 0) {
      const std::uint32_t part = std::min(count, kBlockTokens - filled);
      tokens.copy(head / kv_heads, head % kv_heads, first, part, block.raw(), filled);
      filled += part;
      first += part;
      count -= part;
      if (filled == kBlockTokens) flush();
    }
  };
  const std::uint32_t first = chunk * manifest().chunk_tokens, count = manifest().tokens_of(chunk);
  if (layout.ranked()) {
    for_each_run(manifest().tiers, head, first, first + count, tier, tier + 1,
                 [&](const PlacedRun& run) { add(run.token, run.count); });
  } else {
    add(first, count);
  }
  flush();
  fill_padding(out);
}

// Packs where that is to be done, and sums.
void ExtentEncoder::State::seal(std::uint32_t index, std::uint32_t chunk) {
  BlobInfo& blob = manifest().blobs[index];
  std::span<const std::byte> bytes = chunk_of(index, chunk);
  if (layout.packed(blob.tier)) {
    AlignedBuffer& buffer = packed[index * chunks() + chunk];
    buffer = pack_chunk(layout.quantizer(blob.tier), view.geometry.head_dim, layout.sections(blob, chunk), bytes);
    bytes = buffer.bytes();
  }
  blob.chunks[chunk].checksum = hash128(bytes);
}

// Once it is known how long packed chunks are, they follow one another.
void ExtentEncoder::State::join_packed() {
  for (std::uint32_t index = 0; index < manifest().blobs.size(); ++index) {
    BlobInfo& blob = manifest().blobs[index];
    if (!layout.packed(blob.tier)) continue;
    std::uint64_t at = 0;
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
      blob.chunks[chunk].offset = at;
      blob.chunks[chunk].bytes = packed[index * chunks() + chunk].size();
      at += round_up(blob.chunks[chunk].bytes, kBlobAlignment);
    }
    encoded.parts[index] = AlignedBuffer(blob.bytes());
    std::ranges::fill(encoded.parts[index].bytes(), std::byte{0});
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
      std::ranges::copy(packed[index * chunks() + chunk].bytes(), chunk_of(index, chunk).begin());
    }
  }
  packed.clear();
}

void ExtentEncoder::State::add_rankings() {
  for (const Ranking& ranking : rankings) {
    const auto bytes = ranking.tiers.bytes();
    manifest().rankings.push_back({ranking.name, bytes.size(), hash128(bytes)});
    std::ranges::copy(bytes, encoded.parts.emplace_back(bytes.size()).data());
  }
}

ExtentEncoder::ExtentEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExtentEncoder::~ExtentEncoder() = default;
ExtentEncoder::ExtentEncoder(ExtentEncoder&&) noexcept = default;
ExtentEncoder& ExtentEncoder::operator=(ExtentEncoder&&) noexcept = default;

namespace {

// What an extent needs of the rankings that are there: the one of its method, or all beside an exact one.
Status take_rankings(ExtentManifest& manifest, std::vector<Ranking>& rankings) {
  const std::uint32_t heads = manifest.geometry.layers * manifest.geometry.kv_heads;
  for (const Ranking& ranking : rankings) {
    if (ranking.tiers.heads() == heads && ranking.tiers.tokens() == manifest.tokens) continue;
    return fail(ErrorCode::kInvalidArgument, "the ranking {} is of {} heads and {} tokens, the extent of {} and {}",
                ranking.name, ranking.tiers.heads(), ranking.tiers.tokens(), heads, manifest.tokens);
  }
  manifest.tiers = {};
  if (manifest.method.is_full()) return {};
  if (!manifest.method.scorer.empty()) {
    const auto found = std::ranges::find(rankings, manifest.method.ranking(), &Ranking::name);
    if (found == rankings.end()) {
      return fail(ErrorCode::kInvalidArgument, "{} needs the ranking {}; rank the run first", manifest.method.text(),
                  manifest.method.ranking());
    }
    manifest.tiers = std::move(found->tiers);
  }
  rankings.clear();
  return {};
}

}  // namespace

Result<ExtentEncoder> ExtentEncoder::start(KvView view, ExtentManifest identity, std::vector<Ranking> rankings,
                                           const CachegenTables* tables, BufferPool* buffers) {
  SHALE_TRY(view.check());
  SHALE_TRY(check_identity(identity));
  if (view.geometry != identity.geometry || view.tokens != identity.tokens) {
    return fail(ErrorCode::kInvalidArgument,
                "a view of {} tokens is not that of an extent of {}, or of another geometry", view.tokens,
                identity.tokens);
  }
  SHALE_TRY(take_rankings(identity, rankings));
  SHALE_ASSIGN(identity.layers_per_group,
               suitable_layers_per_group(identity.geometry, identity.method, identity.tokens));
  identity.rankings.clear();
  SHALE_ASSIGN(ExtentLayout layout, ExtentLayout::make(identity, tables));
  auto state = std::unique_ptr<State>(new State{.view = std::move(view),
                                                .layout = std::move(layout),
                                                .rankings = std::move(rankings),
                                                .blocks = nullptr,
                                                .tokens = {},
                                                .encoded = {std::move(identity), {}},
                                                .packed = {}});
  if (state->layout.exact()) {
    state->blocks = std::make_unique<BlockCopies<const std::byte>>(state->view, state->manifest().packing);
  } else {
    state->tokens = TokenCopies(state->view);
  }
  state->lay_out(buffers);
  return ExtentEncoder(std::move(state));
}

bool ExtentEncoder::step(Executor& executor) {
  State& s = *state_;
  const auto run = [&](std::uint32_t& done, std::uint32_t all, std::size_t piece_bytes, const auto& work) {
    const std::uint32_t count = pieces_per_step(piece_bytes, executor.threads(), all - done);
    executor.parallel_for(count, [&, first = done](std::size_t i) {
      const std::uint32_t piece = first + static_cast<std::uint32_t>(i);
      work(piece / s.chunks(), piece % s.chunks());
    });
    done += count;
  };
  if (s.encoded_pieces < s.pieces_to_encode()) {
    run(s.encoded_pieces, s.pieces_to_encode(), s.piece_bytes(), [&](std::uint32_t i, std::uint32_t chunk) {
      s.layout.exact() ? s.copy_group(i, chunk) : s.encode_head(i, chunk);
    });
  } else if (s.sealed_pieces < s.pieces_to_seal()) {
    const std::uint32_t blob = s.sealed_pieces / s.chunks();
    const std::size_t effort = s.layout.packed(s.manifest().blobs[blob].tier) ? kPackingEffort : 1;
    run(s.sealed_pieces, s.pieces_to_seal(), s.encoded.parts[blob].size() / s.chunks() * effort,
        [&](std::uint32_t i, std::uint32_t chunk) { s.seal(i, chunk); });
  }
  return s.encoded_pieces < s.pieces_to_encode() || s.sealed_pieces < s.pieces_to_seal();
}

ExtentEncoder::Encoded ExtentEncoder::finish() {
  State& s = *state_;
  assert(s.encoded_pieces == s.pieces_to_encode() && s.sealed_pieces == s.pieces_to_seal());
  if (!s.layout.exact()) s.join_packed();
  s.add_rankings();
  return std::move(s.encoded);
}

}  // namespace shale
