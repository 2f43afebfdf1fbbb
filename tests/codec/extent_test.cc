// Exact extents: bit for bit through every element, packing, layout and block table; partial hits; damage.
#include "codec/extent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/extent_fixture.h"

namespace shale {
namespace {

constexpr std::uint32_t kTokens = 112, kChunkTokens = 32;  // three chunks and a half

KvGeometry geometry_of(KvElement element) {
  KvGeometry geometry = kGeometry;
  geometry.element = element;
  if (element == KvElement::kOpaque) {
    geometry.kv_heads = geometry.head_dim = 0;
    geometry.opaque_bytes = {100, 36};
  }
  return geometry;
}

struct ExactCase {
  KvElement element;
  KvPacking packing;
};

class ExactExtent : public ::testing::TestWithParam<ExactCase> {
 protected:
  ExactExtent() : geometry_(geometry_of(GetParam().element)) {}
  ExtentManifest identity() const {
    ExtentManifest identity = extent_identity(geometry_, "full", kTokens, kChunkTokens);
    identity.packing = GetParam().packing;
    return identity;
  }
  KvGeometry geometry_;
  ThreadExecutor threads_;
  InlineExecutor alone_;
};

TEST_P(ExactExtent, ComesBackBitForBitInAnyLayout) {
  for (const Layout from : kLayouts) {
    const OwnedView source = make_view(geometry_, from, kTokens, 1);
    const auto extent = encode_extent(source.readable(), identity(), threads_);
    ASSERT_TRUE(extent) << extent.error().message;
    const auto manifest = ExtentManifest::parse(extent->manifest.serialize().bytes());
    ASSERT_TRUE(manifest) << manifest.error().message;
    EXPECT_EQ(manifest->name(), extent->manifest.name());
    for (const Layout to : kLayouts) {
      for (const ExtentSpan& span : std::vector<ExtentSpan>{{.first_chunk = 0, .tokens = kTokens},
                                                            {.first_chunk = 1, .tokens = 48},
                                                            {.first_chunk = 3, .tokens = 16},
                                                            {.first_chunk = 0, .tokens = 16}}) {
        SCOPED_TRACE(::testing::Message() << "layout " << int(from) << " to " << int(to) << ", " << span.tokens
                                          << " tokens from chunk " << span.first_chunk);
        const OwnedView sink = make_view(geometry_, to, kTokens, 2);
        const AlignedBuffer before = copy_of(sink.memory);
        auto decoder = ExtentDecoder::start(*manifest, span, sink.view);
        ASSERT_TRUE(decoder) << decoder.error().message;
        EXPECT_EQ(std::memcmp(before.data(), sink.memory.data(), before.size()), 0) << "written before decode()";
        const Status status = decode_ranges(*decoder, extent->parts, threads_);
        ASSERT_TRUE(status) << status.error().message;
        EXPECT_TRUE(same_tokens(source.view, span.first_chunk * kChunkTokens, span.tokens, sink.view));
        EXPECT_TRUE(only_tokens_differ(sink, span.tokens, before));
        EXPECT_EQ(decoder->rows(0, 4), span.tokens);
      }
    }
  }
}

TEST_P(ExactExtent, EndsAnywhereInABlock) {
  const OwnedView source = make_view(geometry_, Layout::kVllm, kTokens, 1);
  const auto extent = encode_extent(source.readable(), identity(), alone_);
  if (geometry_.opaque()) {  // whose blocks are loaded whole
    const OwnedView sink = make_view(geometry_, Layout::kPlain, kTokens, 2);
    const Status status = decode_extent(*extent, {.tokens = 17}, sink.view, alone_);
    EXPECT_TRUE(!status && status.error().code == ErrorCode::kInvalidArgument);
    return;
  }
  for (const Layout to : kLayouts) {
    for (const std::uint32_t tokens : {1u, 15u, 33u, 70u}) {
      const OwnedView sink = make_view(geometry_, to, kTokens, 2);
      const AlignedBuffer before = copy_of(sink.memory);
      ASSERT_TRUE(decode_extent(*extent, {.first_chunk = 1, .tokens = tokens}, sink.view, alone_));
      EXPECT_TRUE(same_tokens(source.view, kChunkTokens, tokens, sink.view));
      EXPECT_TRUE(only_tokens_differ(sink, tokens, before));
    }
  }
}

TEST_P(ExactExtent, BytesDependOnNothingButTokensAndPacking) {
  const OwnedView source = make_view(geometry_, Layout::kVllm, kTokens, 1);
  const auto expected = encode_extent(source.readable(), identity(), alone_);
  for (const Layout layout : kLayouts) {
    const OwnedView other = make_view(geometry_, layout, kTokens, 9);
    ASSERT_TRUE(decode_extent(*expected, {.tokens = kTokens}, other.view, threads_));
    const auto again = encode_extent(other.readable(), identity(), threads_);
    ASSERT_EQ(again->parts.size(), expected->parts.size());
    for (std::size_t i = 0; i < again->parts.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(again->parts[i].bytes(), expected->parts[i].bytes()));
    }
    EXPECT_EQ(again->manifest.name(), expected->manifest.name());
  }
}

TEST_P(ExactExtent, ReadsAndVerifiesOnlyTheChunksOfAPartialHit) {
  const OwnedView source = make_view(geometry_, Layout::kPoolBlocks, kTokens, 1);
  auto extent = encode_extent(source.readable(), identity(), alone_);
  const OwnedView sink = make_view(geometry_, Layout::kPoolBlocks, kTokens, 2);
  auto decoder = ExtentDecoder::start(extent->manifest, {.first_chunk = 1, .tokens = 33}, sink.view);
  if (geometry_.opaque()) decoder = ExtentDecoder::start(extent->manifest, {.first_chunk = 1, .tokens = 48}, sink.view);
  ASSERT_TRUE(decoder);
  std::uint64_t bytes = 0;
  for (const ExtentRange& range : decoder->ranges()) {
    EXPECT_EQ(range.first_chunk, 1u);
    EXPECT_EQ(range.end_chunk, 3u);
    bytes += range.bytes;
    const std::span<std::byte> blob = extent->parts[range.blob].bytes();
    std::ranges::fill(blob.first(range.offset), std::byte{0});
    std::ranges::fill(blob.subspan(range.offset + range.bytes), std::byte{0});
  }
  const std::uint64_t used = extent->manifest.bytes_for(1, 1, 3);
  EXPECT_GE(bytes, used);
  EXPECT_LT(bytes, used + 64 * decoder->ranges().size()) << "more than what aligns a chunk";
  EXPECT_TRUE(decode_ranges(*decoder, extent->parts, alone_));
  EXPECT_TRUE(same_tokens(source.view, kChunkTokens, geometry_.opaque() ? 48 : 33, sink.view));
}

TEST_P(ExactExtent, ReportsADamagedChunkAndLoadsTheOthers) {
  const OwnedView source = make_view(geometry_, Layout::kVllm, kTokens, 1);
  auto extent = encode_extent(source.readable(), identity(), alone_);
  extent->parts[0].data()[extent->manifest.blobs[0].chunks[2].offset] ^= std::byte{1};
  const OwnedView sink = make_view(geometry_, Layout::kPlain, kTokens, 2);
  auto decoder = ExtentDecoder::start(extent->manifest, {.tokens = kTokens}, sink.view);
  const Status status = decode_ranges(*decoder, extent->parts, threads_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("chunk 2"));
  std::vector<bool> failed;
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) failed.push_back(decoder->failed(chunk));
  EXPECT_THAT(failed, ::testing::ElementsAre(false, false, true, false));
  EXPECT_TRUE(same_tokens(source.view, 0, 64, sink.view));
}

std::vector<ExactCase> exact_cases() {
  std::vector<ExactCase> cases = {{KvElement::kOpaque, KvPacking::kHeadPages}};
  for (const KvElement element : {KvElement::kF16, KvElement::kBf16, KvElement::kF32}) {
    for (const KvPacking packing : {KvPacking::kHeadPages, KvPacking::kTokensHeads, KvPacking::kHeadsTokens}) {
      cases.push_back({element, packing});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Extents, ExactExtent, ::testing::ValuesIn(exact_cases()), [](const auto& test) {
  return std::string(name_of(test.param.element)) + "_" + std::to_string(int(test.param.packing));
});

TEST(Extent, OpaqueBlocksMayBeInOneArray) {
  KvGeometry geometry = geometry_of(KvElement::kOpaque);
  geometry.opaque_bytes = {77, 0};
  InlineExecutor alone;
  const OwnedView source = make_view(geometry, Layout::kVllm, kTokens, 1),
                  sink = make_view(geometry, Layout::kPadded, kTokens, 2);
  const auto extent = encode_extent(source.readable(), extent_identity(geometry, "full", kTokens, 64), alone);
  ASSERT_TRUE(extent) << extent.error().message;
  ASSERT_TRUE(decode_extent(*extent, {.tokens = kTokens}, sink.view, alone));
  EXPECT_TRUE(same_tokens(source.view, 0, kTokens, sink.view));
}

TEST(Extent, HasBlobsOf256KiBWhereItIsLargeEnough) {
  const KvGeometry geometry = {.layers = 6, .kv_heads = 2, .head_dim = 64};
  InlineExecutor alone;
  for (const std::uint32_t tokens : {64u, 256u, 512u, 1024u}) {
    const OwnedView source = make_view(geometry, Layout::kVllm, tokens, 1);
    const auto extent = encode_extent(source.readable(), extent_identity(geometry, "full", tokens, 256), alone);
    ASSERT_TRUE(extent);
    const std::size_t layer_bytes = geometry.block_bytes() * tokens / 16;
    const std::size_t expected = std::min<std::size_t>(6, (256 * 1024 + layer_bytes - 1) / layer_bytes);
    EXPECT_EQ(extent->manifest.layers_per_group, expected) << tokens;
    EXPECT_EQ(extent->parts.size(), (6 + expected - 1) / expected);
    EXPECT_EQ(extent->manifest.bytes_for(1), *extent_bytes(geometry, Method::full(), tokens));
  }
}

TEST(Extent, NamesDifferWithWhatTheyStandFor) {
  InlineExecutor alone;
  const OwnedView source = make_view(kGeometry, Layout::kVllm, 32, 1),
                  other = make_view(kGeometry, Layout::kVllm, 32, 2);
  const ExtentManifest identity = extent_identity(kGeometry, "full", 32, 32);
  const auto name = [&](const OwnedView& view, const auto& change) {
    ExtentManifest changed = identity;
    change(changed);
    return encode_extent(view.readable(), changed, alone)->manifest.name();
  };
  const auto nothing = [](ExtentManifest&) {};
  const std::vector<Hash128> names = {name(source, nothing),
                                      name(other, nothing),
                                      name(source, [](ExtentManifest& m) { m.name_space[5] = std::byte{1}; }),
                                      name(source, [](ExtentManifest& m) { m.tenant = {}; }),
                                      name(source, [](ExtentManifest& m) { m.parent = {}; }),
                                      name(source, [](ExtentManifest& m) { m.keys[1] = {}; }),
                                      name(source, [](ExtentManifest& m) { m.method = {"", "int8"}; })};
  EXPECT_EQ(names[0], name(source, nothing));
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(std::ranges::count(names, names[i]), 1) << i;
  }
}

TEST(Extent, RefusesWhatContradictsItself) {
  const OwnedView source = make_view(kGeometry, Layout::kVllm, 32, 1);
  const auto code = [&](const auto& change) {
    ExtentManifest identity = extent_identity(kGeometry, "full", 32, 32);
    change(identity);
    const auto encoder = ExtentEncoder::start(source.readable(), identity);
    return encoder ? ErrorCode::kInternal : encoder.error().code;
  };
  EXPECT_EQ(code([](ExtentManifest& m) { m.keys.pop_back(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.tokens = 16; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.chunk_tokens = 24; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.token_ids.pop_back(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.windows = {1}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.geometry.layers = 2; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.method = {"", "int9"}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](ExtentManifest& m) { m.method = {"knorm", "int8"}; }), ErrorCode::kInvalidArgument) << "unranked";
  EXPECT_EQ(code([](ExtentManifest& m) { m.packing = KvPacking::kTokensHeads, m.method = {"", "int8"}; }),
            ErrorCode::kInvalidArgument);

  KvGeometry opaque = geometry_of(KvElement::kOpaque);
  const OwnedView bytes = make_view(opaque, Layout::kVllm, 32, 1);
  EXPECT_EQ(ExtentEncoder::start(bytes.readable(), extent_identity(opaque, "int8", 32, 32)).error().code,
            ErrorCode::kUnsupported);
}

TEST(ExtentDecoder, RefusesForeignViewsAndSpansBeyondTheExtent) {
  InlineExecutor alone;
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  const auto extent = encode_extent(source.readable(), extent_identity(kGeometry, "full", kTokens, 32), alone);
  const auto code = [&](const ExtentSpan& span, const MutableKvView& view) {
    const auto decoder = ExtentDecoder::start(extent->manifest, span, view);
    return decoder ? ErrorCode::kInternal : decoder.error().code;
  };
  const OwnedView same = make_view(kGeometry, Layout::kPlain, kTokens, 2);
  for (const ExtentSpan& span : std::vector<ExtentSpan>{{.tokens = 0},
                                                        {.tokens = kTokens + 1},
                                                        {.first_chunk = 4, .tokens = 1},
                                                        {.first_chunk = ~0u, .tokens = 1},
                                                        {.first_chunk = 3, .tokens = 17},
                                                        {.tokens = 1, .keep = 0},
                                                        {.tokens = 1, .keep = 1.1}}) {
    EXPECT_EQ(code(span, same.view), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(code({.tokens = 49}, make_view(kGeometry, Layout::kPlain, 48, 2).view), ErrorCode::kInvalidArgument);
  KvGeometry wide = geometry_of(KvElement::kF32), few = kGeometry;
  few.kv_heads = 1;
  EXPECT_EQ(code({.tokens = 16}, make_view(wide, Layout::kPlain, 48, 2).view), ErrorCode::kMismatch);
  EXPECT_EQ(code({.tokens = 16}, make_view(few, Layout::kPlain, 48, 2).view), ErrorCode::kMismatch);

  auto decoder = ExtentDecoder::start(extent->manifest, {.tokens = kTokens}, same.view);
  const std::span<const std::byte> bytes = extent->parts[0].bytes();
  EXPECT_EQ(decoder->decode(9, bytes, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decoder->decode(0, bytes.first(64), alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(decoder->decode(0, bytes, alone));
  EXPECT_EQ(decoder->decode(0, bytes, alone).error().code, ErrorCode::kInvalidArgument) << "twice";
}

}  // namespace
}  // namespace shale
