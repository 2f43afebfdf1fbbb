// Lossy extents: every quantizer, scorer and budget, from and into every layout and element, against naive selection
// and quantization.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "codec/extent_fixture.h"
#include "codec/naive_tiers.h"
#include "scoring/calibration.h"

namespace shale {
namespace {

constexpr PageShape kShape = {.layers = 3, .kv_heads = 2, .head_dim = 32, .block_size = 16};
constexpr std::uint32_t kTokens = 144, kChunkTokens = 64;

void write_context(const MutableKvView& view, const Context& context) {
  const KvElement element = view.geometry.element;
  for_each_element(view, 0, view.tokens,
                   [&](std::uint32_t layer, bool values, std::uint32_t token, std::uint32_t head, std::uint32_t c,
                       std::byte* at, std::size_t) {
                     const HeadRows& rows = context.heads[layer * context.shape.kv_heads + head];
                     write_element(element, values ? rows.value(token, c) : rows.key(token, c), at);
                   });
}

Result<Ranking> rank(KvView view, std::string_view name, const Context& context, Executor& executor,
                     const ModelTraits& model = {}) {
  const AttentionStatistics statistics = observed(context, 0, view.tokens);
  SHALE_ASSIGN(RunRanker ranker, RunRanker::start(std::move(view), name, 0, kOptions, statistics, model));
  while (ranker.step(executor)) {
  }
  return ranker.finish();
}

Result<ExtentEncoder::Encoded> encode_lossy(const OwnedView& source, std::string_view method, const Context& context,
                                            Executor& executor) {
  ExtentManifest identity = extent_identity(source.view.geometry, method, source.view.tokens, kChunkTokens);
  std::vector<Ranking> rankings;
  if (!identity.method.scorer.empty()) {
    SHALE_ASSIGN(rankings.emplace_back(), rank(source.readable(), identity.method.ranking(), context, executor));
  }
  return encode_extent(source.readable(), std::move(identity), executor, std::move(rankings));
}

// How far a token's elements may be from what was stored: each tier of each chunk is quantized on its own.
struct Expected {
  std::vector<std::uint32_t> tokens;  // kept ones, in order
  HeadRows bounds;                    // of all tokens
};

Expected expected_head(const Context& context, const Method& method, std::uint32_t head, const ExtentSpan& span) {
  const auto by_tier = naive_tiers(context, method, head, 0, kTokens);
  const HeadRows& rows = context.heads[head];
  Expected expected{{}, HeadRows(kTokens, rows.head_dim)};
  const std::uint32_t first = span.first_chunk * kChunkTokens, end = first + span.tokens;
  const std::size_t tiers = method.scorer.empty() ? 1 : tiers_for(span.keep);
  for (std::uint32_t tier = 0; tier < tiers; ++tier) {
    for (std::uint32_t chunk = 0; chunk * kChunkTokens < kTokens; ++chunk) {
      std::vector<std::uint32_t> members;
      for (const std::uint32_t token : by_tier[tier]) {
        if (token / kChunkTokens == chunk) members.push_back(token);
      }
      if (members.empty()) continue;
      const HeadRows stored = rows_at(rows, members);
      const HeadRows bounds = quantizer_bounds(std::string(method.quantizer_of(tier)), stored);
      for (std::uint32_t i = 0; i < stored.tokens; ++i) {
        for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
          expected.bounds.key(members[i], c) = bounds.key(i, c);
          expected.bounds.value(members[i], c) = bounds.value(i, c);
        }
        if (members[i] >= first && members[i] < end) expected.tokens.push_back(members[i]);
      }
    }
  }
  std::ranges::sort(expected.tokens);
  return expected;
}

void expect_decoded(const Context& context, const Method& method, const ExtentSpan& span, const ExtentDecoder& decoder,
                    const MutableKvView& view) {
  const double rounding = view.geometry.element == KvElement::kBf16 ? 0x1p-8 : 0;
  for (std::uint32_t index = 0; index < context.heads.size(); ++index) {
    const Expected expected = expected_head(context, method, index, span);
    ASSERT_EQ(decoder.rows(index, ~0u / kChunkTokens), expected.tokens.size()) << "head " << index;
    ASSERT_EQ(decoder.positions(index), expected.tokens);
    for (std::uint32_t row = 0; row < expected.tokens.size(); ++row) {
      const std::uint32_t token = expected.tokens[row], layer = index / kShape.kv_heads, head = index % kShape.kv_heads;
      for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
        const auto near = [&](const KvArray<std::byte>& array, float stored, float bound) {
          const float got = read_element(view.geometry.element, element_at(view, array, layer, row, head, c));
          return std::abs(got - stored) <= bound + rounding * (std::abs(stored) + bound);
        };
        ASSERT_TRUE(near(view.keys, context.heads[index].key(token, c), expected.bounds.key(token, c)))
            << "head " << index << " token " << token << " channel " << c;
        ASSERT_TRUE(near(view.values, context.heads[index].value(token, c), expected.bounds.value(token, c)))
            << "head " << index << " token " << token << " channel " << c;
      }
    }
  }
}

std::vector<std::string> all_methods() {
  std::vector<std::string> methods = {"snapkv+int8/kivi2",
                                      "keydiff+none/layered/int8/layered2/turboquant3",
                                      "adakv:knorm",
                                      "adakv:snapkv+kivi4",
                                      "global:keydiff+layered",
                                      "global:knorm+cachegen",
                                      "global:random+none/int8/turboquant3",
                                      "pyramid:streaming+int8"};
  for (const std::string_view quantizer : quantizer_names()) {
    if (quantizer != "none") methods.emplace_back(quantizer);
    if (quantizer != "none") methods.push_back(Method{"knorm", std::string(quantizer)}.text());
  }
  for (const std::string_view scorer : scorer_names()) {
    if (missing_needs((*make_scorer(scorer))->needs(), kCaptured).empty()) methods.emplace_back(scorer);
  }
  return methods;
}

class LossyExtent : public ::testing::TestWithParam<std::string> {
 protected:
  const Context context_ = random_context(kShape, kTokens, 1);
  ThreadExecutor threads_;
};

TEST_P(LossyExtent, DecodesAnyPart) {
  const Method method = *Method::parse(GetParam());
  const OwnedView source = make_view(kGeometry, Layout::kPoolBlocks, kTokens, 1);
  write_context(source.view, context_);
  const auto extent = encode_lossy(source, GetParam(), context_, threads_);
  ASSERT_TRUE(extent) << extent.error().message;
  const auto manifest = ExtentManifest::parse(extent->manifest.serialize().bytes());
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->name(), extent->manifest.name());
  for (const ExtentSpan& span : std::vector<ExtentSpan>{{.tokens = kTokens},
                                                        {.tokens = 100, .keep = 0.5},
                                                        {.first_chunk = 1, .tokens = 64, .keep = 0.1},
                                                        {.first_chunk = 1, .tokens = 17, .keep = 0.6},
                                                        {.first_chunk = 2, .tokens = 1, .keep = 0.25}}) {
    SCOPED_TRACE(::testing::Message() << span.tokens << " tokens from chunk " << span.first_chunk << ", keep "
                                      << span.keep);
    const std::vector<std::uint32_t> rows = extent_rows(*manifest, span);
    const std::uint32_t room = std::max(1u, std::ranges::max(rows));
    const OwnedView sink = make_view(kGeometry, Layout::kPoolBlocks, room, 2);
    const AlignedBuffer before = copy_of(sink.memory);
    auto decoder = ExtentDecoder::start(*manifest, span, sink.view);
    ASSERT_TRUE(decoder) << decoder.error().message;
    const Status status = decode_ranges(*decoder, extent->parts, threads_);
    ASSERT_TRUE(status) << status.error().message;
    expect_decoded(context_, method, span, *decoder, sink.view);
    EXPECT_TRUE(only_tokens_differ(sink, room, before));
  }
}

TEST_P(LossyExtent, TakesAndGivesEveryLayoutAndElement) {
  const Method method = *Method::parse(GetParam());
  Context context = context_;
  for (HeadRows& rows : context.heads) {  // to what both 16-bit formats can hold
    for (std::vector<float>* part : {&rows.keys, &rows.values}) {
      for (float& x : *part) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000);
    }
  }
  InlineExecutor alone;
  std::optional<Hash128> checksum;
  for (const KvElement element : {KvElement::kF16, KvElement::kBf16, KvElement::kF32}) {
    KvGeometry geometry = kGeometry;
    geometry.element = element;
    for (const Layout layout : kLayouts) {
      SCOPED_TRACE(::testing::Message() << name_of(element) << ", layout " << int(layout));
      const OwnedView source = make_view(geometry, layout, kTokens, 3), sink = make_view(geometry, layout, kTokens, 4);
      write_context(source.view, context);
      const auto extent = encode_lossy(source, GetParam(), context, alone);
      ASSERT_TRUE(extent) << extent.error().message;
      const Hash128 first = extent->manifest.blobs[0].chunks[0].checksum;
      EXPECT_EQ(checksum.value_or(first), first) << "codes depend on nothing but numbers";
      checksum = first;
      const ExtentSpan span = {.tokens = 130, .keep = 0.75};
      auto decoder = ExtentDecoder::start(extent->manifest, span, sink.view);
      ASSERT_TRUE(decoder && decode_ranges(*decoder, extent->parts, alone));
      expect_decoded(context, method, span, *decoder, sink.view);
    }
  }
}

TEST_P(LossyExtent, ReportsADamagedChunkAndLoadsTheOthers) {
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context_);
  auto extent = encode_lossy(source, GetParam(), context_, threads_);
  for (std::size_t i = extent->parts.size(); i-- > 0;) {  // some tiers have nothing of the chunk
    const BlobChunk& chunk = extent->manifest.blobs[i].chunks[1];
    if (chunk.bytes == 0) continue;
    extent->parts[i].data()[chunk.offset] ^= std::byte{1};
    break;
  }
  const OwnedView sink = make_view(kGeometry, Layout::kVllm, kTokens, 2);
  auto decoder = ExtentDecoder::start(extent->manifest, {.tokens = kTokens}, sink.view);
  const Status status = decode_ranges(*decoder, extent->parts, threads_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(!decoder->failed(0) && decoder->failed(1) && !decoder->failed(2));
}

std::string test_name(std::string method) {
  std::ranges::replace_if(method, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return method;
}
INSTANTIATE_TEST_SUITE_P(Extents, LossyExtent, ::testing::ValuesIn(all_methods()),
                         [](const auto& method) { return test_name(method.param); });

// What the format promises: whoever reads plane 0 alone has what layered2 would have stored.
TEST(LayeredExtent, HasTheBytesOfLayered2AsItsBasePlanes) {
  const Context context = random_context(kShape, kTokens, 8);
  const OwnedView source = make_view(kGeometry, Layout::kPoolBlocks, kTokens, 1);
  write_context(source.view, context);
  InlineExecutor alone;
  for (const auto& [method, coarse] :
       std::vector<std::pair<std::string, std::string>>{{"layered", "layered2"},
                                                        {"knorm+layered", "knorm+layered2"},
                                                        {"knorm+layered/int8", "knorm+layered2/int8"}}) {
    SCOPED_TRACE(method);
    const auto extent = encode_lossy(source, method, context, alone),
               expected = encode_lossy(source, coarse, context, alone);
    ASSERT_TRUE(extent && expected);
    std::size_t base_planes = 0;
    for (std::size_t i = 0; i < extent->parts.size(); ++i) {
      if (extent->manifest.blobs[i].plane != kBasePlane) continue;
      ASSERT_LT(base_planes, expected->parts.size());
      EXPECT_TRUE(std::ranges::equal(extent->parts[i].bytes(), expected->parts[base_planes].bytes())) << i;
      ++base_planes;
    }
    EXPECT_EQ(base_planes, expected->parts.size());
    EXPECT_GT(extent->parts.size(), base_planes) << "something refines them";
  }
}

// An exact extent keeps rankings, so that it can be compressed when what scorers read is long gone.
TEST(ExactExtent, IsCompressedLaterAsItWouldHaveBeenAtOnce) {
  const Context context = random_context(kShape, kTokens, 5);
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context);
  ThreadExecutor threads;
  const auto ranking = rank(source.readable(), "adakv:snapkv", context, threads);
  ASSERT_TRUE(ranking);
  const auto exact =
      encode_extent(source.readable(), extent_identity(kGeometry, "full", kTokens, kChunkTokens), threads, {*ranking});
  ASSERT_TRUE(exact);
  const auto manifest = ExtentManifest::parse(exact->manifest.serialize().bytes());
  ASSERT_EQ(manifest->rankings.size(), 1u);
  const std::uint32_t part = static_cast<std::uint32_t>(manifest->blobs.size());
  ASSERT_EQ(manifest->parts(), part + 1);
  ASSERT_EQ(manifest->part_bytes(part), exact->parts[part].size());
  EXPECT_EQ(manifest->rankings[0].checksum, hash128(exact->parts[part].bytes()));

  const OwnedView later = make_view(kGeometry, Layout::kPlain, kTokens, 2);
  ASSERT_TRUE(decode_extent(*exact, {.tokens = kTokens}, later.view, threads));
  auto tiers = TierMap::parse(kShape.pages_per_block(), kTokens, exact->parts[part].bytes());
  ASSERT_TRUE(tiers);
  const ExtentManifest identity = extent_identity(kGeometry, "adakv:snapkv+int8", kTokens, kChunkTokens);
  const auto compressed = encode_extent(later.readable(), identity, threads, {{manifest->rankings[0].name, *tiers}});
  const auto at_once = encode_lossy(source, "adakv:snapkv+int8", context, threads);
  ASSERT_TRUE(compressed && at_once);
  EXPECT_EQ(compressed->manifest.name(), at_once->manifest.name());
}

// What a calibration knows of queries, none need be seen for.
TEST(LossyExtent, ACalibrationRanksTheSameWithAndWithoutQueries) {
  const Context context = random_context(kShape, kTokens, 8);
  const std::vector<Rope> ropes(kShape.layers, Rope{.dimensions = kShape.head_dim});
  const std::uint32_t query_heads = observed(context, 0, kTokens).query_heads;
  Calibrator calibrator(kShape.layers, query_heads, ropes[0]);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (std::uint32_t head = 0; head < kShape.layers * query_heads; ++head) {
    std::vector<float> queries(20 * kShape.head_dim);
    for (float& value : queries) value = normal(random) + 1;
    calibrator.add(head / query_heads, head % query_heads, queries, kShape.head_dim);
  }
  const Calibration calibration = calibrator.finish();
  const ModelTraits model = {.ropes = ropes, .calibration = &calibration};
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context);
  InlineExecutor alone;
  const AttentionStatistics nothing;
  auto unseen = RunRanker::start(source.readable(), "triattention", 0, kOptions, nothing, model);
  ASSERT_TRUE(unseen) << unseen.error().message;
  while (unseen->step(alone)) {
  }
  const auto beside = rank(source.readable(), "triattention", context, alone, model);
  ASSERT_TRUE(beside) << beside.error().message;
  EXPECT_TRUE(unseen->finish().tiers == beside->tiers);

  Calibrator others(kShape.layers, query_heads + 1, ropes[0]);
  const Calibration of_another = others.finish();
  const auto refused = RunRanker::start(source.readable(), "triattention", 0, kOptions, nothing,
                                        {.ropes = ropes, .calibration = &of_another});
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(LossyExtent, SaysBeforehandWhatCannotBeEncoded) {
  KvGeometry geometry = kGeometry;
  EXPECT_TRUE(check_encodable(geometry, Method::parse("keydiff+kivi4").value()));
  geometry.head_dim = 80;
  EXPECT_TRUE(check_encodable(geometry, Method::full()));
  EXPECT_EQ(check_encodable(geometry, Method::parse("kivi4").value()).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(extent_bytes(geometry, Method::parse("kivi4").value(), kTokens));
}

// Importance tiers are cuts of the run: a head may have none of a tier in one of its extents.
TEST(LossyExtent, IsOnePartOfARankedRun) {
  const Context context = random_context(kShape, kTokens, 6);
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context);
  InlineExecutor alone;
  const auto ranking = rank(source.readable(), "knorm", context, alone);
  std::vector<std::uint32_t> rows(kShape.pages_per_block());
  for (const std::uint32_t first : {0u, 64u, 128u}) {
    const std::uint32_t count = std::min(64u, kTokens - first);
    const auto extent =
        encode_extent(source.readable().part(first, count), extent_identity(kGeometry, "knorm+int8", count, 32), alone,
                      {{"knorm", ranking->tiers.part(first, count)}});
    ASSERT_TRUE(extent) << extent.error().message;
    const ExtentSpan span = {.tokens = count, .keep = 0.1};
    const std::vector<std::uint32_t> of_extent = extent_rows(extent->manifest, span);
    for (std::uint32_t head = 0; head < rows.size(); ++head) rows[head] += of_extent[head];
    const OwnedView sink = make_view(kGeometry, Layout::kVllm, count, 2);
    EXPECT_TRUE(decode_extent(*extent, span, sink.view, alone));
  }
  EXPECT_THAT(rows, ::testing::Each(kept_tokens(kTokens, 0.1)));
}

// The placement plans by sizes of what nobody has encoded yet.
TEST(WindowedLayers, AreExpectedWholeAtEveryKeep) {
  const std::uint32_t windows[] = {40, 0, 40};
  const Context context = random_context(kShape, kTokens, 9);
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context);
  InlineExecutor alone;
  ExtentManifest identity = extent_identity(kGeometry, "knorm", kTokens, kTokens);
  identity.windows.assign(windows, windows + 3);
  const auto ranking = rank(source.readable(), "knorm", context, alone, {.windows = windows});
  const auto extent = encode_extent(source.readable(), identity, alone, {*ranking});
  for (const double keep : kKeepGrid) {
    const auto expected = extent_bytes(kGeometry, identity.method, kTokens, keep, windows);
    EXPECT_NEAR(static_cast<double>(extent->manifest.bytes_for(keep)), static_cast<double>(*expected), 500) << keep;
  }
}

// Layers with a window lie in groups of their own, are not ranked, and are read only where a query after the hit sees.
TEST(WindowedLayers, AreReadWithinTheWindowOfTheHitsEnd) {
  const std::uint32_t windows[] = {40, 0, 40};
  const Context context = random_context(kShape, kTokens, 7);
  const OwnedView source = make_view(kGeometry, Layout::kVllm, kTokens, 1);
  write_context(source.view, context);
  InlineExecutor alone;
  for (const std::string method : {"full", "int8", "knorm"}) {
    SCOPED_TRACE(method);
    ExtentManifest identity = extent_identity(kGeometry, method, kTokens, 32);
    identity.windows.assign(windows, windows + 3);
    std::vector<Ranking> rankings;
    if (method == "knorm") rankings.push_back(*rank(source.readable(), method, context, alone, {.windows = windows}));
    const auto extent = encode_extent(source.readable(), identity, alone, rankings);
    ASSERT_TRUE(extent) << extent.error().message;
    ASSERT_EQ(extent->manifest.layer_groups().size(), 3u);
    ASSERT_TRUE(ExtentManifest::parse(extent->manifest.serialize().bytes()));
    struct Case {
      ExtentSpan span;
      std::uint32_t first_row;  // of the first layer
    };
    for (const Case& test : std::vector<Case>{{{.tokens = 144}, 96},
                                              {{.tokens = 135}, 96},
                                              {{.tokens = 134}, 64},
                                              {{.tokens = 39}, 0},
                                              {{.first_chunk = 1, .tokens = 96}, 32},
                                              {{.tokens = 144, .tokens_after = 38}, 128},
                                              {{.tokens = 144, .tokens_after = 39}, 144}}) {
      const OwnedView sink = make_view(kGeometry, Layout::kVllm, kTokens, 2);
      auto decoder = ExtentDecoder::start(extent->manifest, test.span, sink.view);
      ASSERT_TRUE(decoder) << decoder.error().message;
      EXPECT_EQ(decoder->first_row(0), test.first_row) << test.span.tokens << " and " << test.span.tokens_after;
      EXPECT_EQ(decoder->first_row(1), 0u);
      EXPECT_EQ(decoder->rows(0, 5), test.span.tokens);
      for (const ExtentRange& range : decoder->ranges()) {
        const bool full_layer = range.group == 1;
        EXPECT_EQ(range.first_chunk, test.span.first_chunk + (full_layer ? 0 : test.first_row / 32));
      }
      ASSERT_TRUE(decode_ranges(*decoder, extent->parts, alone));
      for (std::uint32_t row = test.first_row; row < test.span.tokens; ++row) {
        const std::byte* got = element_at(sink.view, sink.view.keys, 0, row, 1, 3);
        const float stored = context.heads[1].key(test.span.first_chunk * 32 + row, 3);
        ASSERT_NEAR(read_element(KvElement::kF16, got), stored, method == "int8" ? 0.3 : 0) << row;
      }
    }
  }
}

}  // namespace
}  // namespace shale
