// A small extent whose numbers follow a formula, so that its bytes can be checked in and read for ever.
#pragma once

#include "codec/extent_fixture.h"
#include "core/hash.h"

namespace shale {

inline constexpr KvGeometry kSmallGeometry = {
    .element = KvElement::kF16, .layers = 2, .kv_heads = 1, .head_dim = 32, .block_tokens = 8};
inline constexpr std::uint32_t kSmallExtentTokens = 24, kSmallChunkTokens = 16;
inline constexpr std::string_view kOpaqueExtent = "opaque";  // in place of a method

inline KvGeometry small_geometry(std::string_view method) {
  KvGeometry geometry = kSmallGeometry;
  if (method == kOpaqueExtent) {
    geometry.element = KvElement::kOpaque;
    geometry.kv_heads = geometry.head_dim = 0;
    geometry.opaque_bytes = {40, 8};
  }
  return geometry;
}

inline float small_number(bool values, std::uint32_t layer, std::uint32_t token, std::uint32_t c) {
  return values ? static_cast<float>((token * 13 + c * 11 + layer * 3) % 64) / 16 - 2
                : static_cast<float>((token * 31 + c * 7 + layer * 5) % 64) / 8 - 4;
}

// Fills a view of small_geometry().
inline void write_small_numbers(const MutableKvView& view) {
  for_each_element(view, 0, view.tokens,
                   [&](std::uint32_t layer, bool values, std::uint32_t token, std::uint32_t, std::uint32_t c,
                       std::byte* at, std::size_t bytes) {
                     if (view.geometry.opaque()) {
                       for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(token + layer * 100 + i);
                     } else {
                       write_element(KvElement::kF16, small_number(values, layer, token, c), at);
                     }
                   });
}

inline ExtentEncoder::Encoded small_extent(std::string_view method) {
  const KvGeometry geometry = small_geometry(method);
  const OwnedView source = make_view(geometry, Layout::kVllm, kSmallExtentTokens, 1);
  write_small_numbers(source.view);
  InlineExecutor alone;
  ExtentManifest identity =
      extent_identity(geometry, method == kOpaqueExtent ? "full" : method, kSmallExtentTokens, kSmallChunkTokens);
  std::vector<Ranking> rankings;
  const std::string ranking = identity.method.is_full() ? "knorm" : identity.method.ranking();
  if (!geometry.opaque() && !ranking.empty()) {
    const AttentionStatistics nothing;
    auto ranker = RunRanker::start(source.readable(), ranking, 0, kOptions, nothing, {});
    EXPECT_TRUE(ranker) << ranker.error().message;
    while (ranker->step(alone)) {
    }
    rankings.push_back(ranker->finish());
  }
  auto extent = encode_extent(source.readable(), std::move(identity), alone, std::move(rankings));
  EXPECT_TRUE(extent) << extent.error().message;
  return std::move(*extent);
}

// Makes the checksum of a manifest's bytes right again.
inline void reseal(std::span<std::byte> manifest) {
  const Hash128 hash = hash128(manifest.first(manifest.size() - 16));
  std::memcpy(manifest.data() + manifest.size() - 16, &hash.high, 8);
  std::memcpy(manifest.data() + manifest.size() - 8, &hash.low, 8);
}

// Decodes an extent but for its last token, which opaque blocks cannot leave out, into a fresh view, if that is small.
inline Status try_decode_extent(const ExtentManifest& manifest, const std::vector<AlignedBuffer>& parts) {
  if (manifest.geometry.bytes(manifest.tokens) > 1 << 20) return fail(ErrorCode::kFull, "not in a test");
  const OwnedView sink = make_view(manifest.geometry, Layout::kPoolBlocks, manifest.tokens, 1);
  const std::uint32_t cut = manifest.geometry.opaque() ? 0 : 1;
  const ExtentSpan span = {.tokens = manifest.tokens - cut};
  SHALE_ASSIGN(ExtentDecoder decoder, ExtentDecoder::start(manifest, span, sink.view));
  InlineExecutor alone;
  for (std::uint32_t i = 0; i < decoder.ranges().size(); ++i) {
    const ExtentRange& range = decoder.ranges()[i];
    if (parts[range.blob].size() < range.offset + range.bytes) return fail(ErrorCode::kCorrupt, "a blob is short");
    SHALE_TRY(decoder.decode(i, parts[range.blob].bytes().subspan(range.offset, range.bytes), alone));
  }
  return {};
}

}  // namespace shale
