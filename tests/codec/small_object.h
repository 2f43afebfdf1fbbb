// A small object whose numbers follow a formula, so that its bytes can be checked in and read for ever.
#pragma once

#include "codec/object_fixture.h"
#include "core/hash.h"

namespace shale {

inline constexpr PageShape kSmallShape = {.layers = 2, .kv_heads = 1, .head_dim = 32, .page_tokens = 8};
inline constexpr std::uint32_t kSmallTokens = 11;

inline Context small_context() {
  Context context{kSmallShape, kSmallTokens, 2, {}, {}};
  for (std::uint32_t layer = 0; layer < kSmallShape.layers; ++layer) {
    HeadRows& rows = context.heads.emplace_back(kSmallTokens, kSmallShape.head_dim);
    for (std::uint32_t i = 0; i < rows.tokens; ++i) {
      for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
        rows.key(i, c) = static_cast<float>((i * 31 + c * 7 + layer * 5) % 64) / 8 - 4;
        rows.value(i, c) = static_cast<float>((i * 13 + c * 11 + layer * 3) % 64) / 16 - 2;
      }
    }
  }
  context.queries.resize(std::size_t{kSmallShape.layers} * 2 * kSmallTokens * kSmallShape.head_dim, 0.5f);
  return context;
}

inline ObjectEncoder::Encoded small_object(std::string_view method) {
  const Context context = small_context();
  const auto pool = make_pool(kSmallShape, 4);
  Sequence source(*pool);
  append(source, context, 0, kSmallTokens);
  InlineExecutor alone;
  auto object = encode(context, source, method, 0, kSmallTokens, alone);
  EXPECT_TRUE(object);
  return std::move(*object);
}

// Makes the checksum of a manifest's bytes right again.
inline void reseal(std::span<std::byte> manifest) {
  const Hash128 hash = hash128(manifest.first(manifest.size() - 16));
  std::memcpy(manifest.data() + manifest.size() - 16, &hash.high, 8);
  std::memcpy(manifest.data() + manifest.size() - 8, &hash.low, 8);
}

// Decodes everything of an object into a fresh pool of its own shape, if that is small.
inline Status try_decode(const Manifest& manifest, const std::vector<std::span<const std::byte>>& chunks) {
  if (manifest.shape.slab_bytes() > 1 << 20) return fail(ErrorCode::kFull, "not in a test");
  const auto pool = make_pool(manifest.shape, 64);
  Sequence sequence(*pool);
  InlineExecutor alone;
  const auto logical = static_cast<std::uint32_t>(manifest.tokens.size() + 1) / 2;
  SHALE_ASSIGN(ObjectDecoder decoder, ObjectDecoder::start(manifest, 1.0, logical, sequence));
  for (std::uint32_t i = 0; i < manifest.chunks.size() && i < chunks.size(); ++i) {
    SHALE_TRY(decoder.decode(i, chunks[i], alone));
  }
  EXPECT_TRUE(sequence.check_integrity());
  return {};
}

}  // namespace shale
