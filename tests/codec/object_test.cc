// Stored objects, encoded from one pool and decoded into another, against naive selection and quantization.
#include "codec/object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/naive_strata.h"

namespace shale {
namespace {

constexpr PageShape kShape = {.layers = 3, .kv_heads = 2, .head_dim = 32, .page_tokens = 16};

// What the decoded sequence must hold after its first `prefix` tokens, within the quantizer's bounds.
void expect_decoded(const Context& context, const Sequence& sequence, const Manifest& manifest, double keep,
                    std::uint32_t logical, std::uint32_t prefix, Bits bits = Bits::kAll,
                    std::span<const std::uint32_t> windows = {}) {
  const std::uint32_t first = manifest.first_position, end = first + static_cast<std::uint32_t>(manifest.tokens.size());
  for (std::uint32_t index = 0; index < context.shape.pages_per_slab(); ++index) {
    const HeadRows got = held(sequence, index / context.shape.kv_heads, index % context.shape.kv_heads, prefix);
    const std::uint32_t window = windows.empty() ? 0 : windows[index / context.shape.kv_heads];
    const auto strata = naive_strata(context, manifest.method, index, first, end, windows);
    const std::uint32_t in_sight = window && logical >= window ? logical - window + 1 : 0;
    std::uint32_t at = 0;
    for (std::uint32_t s = 0; s < manifest.strata_for(keep); ++s) {
      HeadRows stored(static_cast<std::uint32_t>(strata[s].size()), context.shape.head_dim);
      for (std::uint32_t i = 0; i < stored.tokens; ++i) {
        for (std::uint32_t c = 0; c < stored.head_dim; ++c) {
          stored.key(i, c) = context.heads[index].key(first + strata[s][i], c);
          stored.value(i, c) = context.heads[index].value(first + strata[s][i], c);
        }
      }
      const std::string quantizer(manifest.method.quantizer_of(s));
      const HeadRows bounds =
          quantizer_bounds(quantizer == "layered" && bits == Bits::kBase ? "layered2" : quantizer, stored);
      for (std::uint32_t i = 0; i < stored.tokens && strata[s][i] < logical; ++i) {
        if (strata[s][i] < in_sight) continue;
        ASSERT_LT(at, got.tokens);
        for (std::uint32_t c = 0; c < stored.head_dim; ++c) {
          ASSERT_LE(std::abs(got.key(at, c) - stored.key(i, c)), bounds.key(i, c))
              << "head " << index << " token " << at;
          ASSERT_LE(std::abs(got.value(at, c) - stored.value(i, c)), bounds.value(i, c)) << "head " << index;
        }
        ++at;
      }
    }
    ASSERT_EQ(at, got.tokens) << "head " << index;
  }
}

std::vector<std::string> all_methods() {
  std::vector<std::string> methods = {"full",
                                      "snapkv+int8/kivi2",
                                      "keydiff+none/layered/int8/layered2/turboquant3",
                                      "adakv:knorm",
                                      "adakv:snapkv+kivi4",
                                      "global:keydiff+layered",
                                      "global:knorm+cachegen",
                                      "global:random+none/int8/turboquant3",
                                      "pyramid:streaming+int8"};
  for (const std::string_view quantizer : quantizer_names()) {
    if (quantizer == "none") continue;
    methods.emplace_back(quantizer);
    methods.push_back(Method{"knorm", std::string(quantizer)}.text());
  }
  for (const std::string_view scorer : scorer_names()) {
    if (!missing_needs((*make_scorer(scorer))->needs(), kCaptured).empty()) continue;
    methods.emplace_back(scorer);
    methods.push_back(Method{std::string(scorer), "kivi4"}.text());
  }
  std::ranges::sort(methods);
  methods.erase(std::ranges::unique(methods).begin(), methods.end());
  return methods;
}

class EveryMethod : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryMethod, EncodesAndDecodesAnyPartOfAnyEntry) {
  struct Case {
    std::uint32_t first, end, prefix;  // the entry's tokens, and how many the receiving sequence has before them
    double keep;
    std::uint32_t logical;
  };
  const Context context = random_context(kShape, 150, 1);
  const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 30);
  Sequence source(*pool);
  append(source, context, 0, 150);
  ThreadExecutor threads;
  InlineExecutor alone;
  for (const Case& test : std::vector<Case>{{0, 150, 0, 1.0, 150},
                                            {0, 150, 0, 0.5, 150},
                                            {0, 150, 0, 0.1, 70},
                                            {32, 150, 32, 0.75, 118},
                                            {37, 149, 37, 1.0, 112},
                                            {37, 149, 37, 1.0, 50},
                                            {37, 149, 37, 0.25, 1},
                                            {144, 150, 144, 0.3, 6},
                                            {7, 8, 7, 0.1, 1},
                                            {16, 80, 16, 1.0, 33},
                                            {16, 80, 16, 0.9, 32}}) {
    SCOPED_TRACE(::testing::Message() << "tokens " << test.first << " to " << test.end << ", keep " << test.keep
                                      << ", logical " << test.logical);
    const auto object = encode(context, source, GetParam(), test.first, test.end, threads);
    ASSERT_TRUE(object) << object.error().message;
    const auto manifest = Manifest::parse(object->manifest.serialize().bytes());
    ASSERT_TRUE(manifest) << manifest.error().message;
    Sequence sequence(*other_pool);
    if (test.prefix > 0) append(sequence, context, 0, test.prefix);
    Executor& executor = test.first % 2 == 0 ? static_cast<Executor&>(threads) : alone;
    const Status status = decode(*object, test.keep, test.logical, sequence, executor);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(sequence.length(), test.prefix + test.logical);
    EXPECT_EQ(sequence.lossy(), GetParam() != "full");
    ASSERT_NO_FATAL_FAILURE(expect_decoded(context, sequence, *manifest, test.keep, test.logical, test.prefix));
    ASSERT_TRUE(sequence.check_integrity()) << sequence.check_integrity().error().message;
    ASSERT_TRUE(other_pool->check_integrity());
    append(sequence, context, 0, 20);  // the sequence goes on
    ASSERT_TRUE(sequence.check_integrity());
  }
  EXPECT_EQ(other_pool->slabs_free(), other_pool->slabs_total());
}

TEST_P(EveryMethod, EncodesAndDecodesOneWideHead) {
  constexpr PageShape kWide = {.layers = 2, .kv_heads = 1, .head_dim = 256, .page_tokens = 16};
  const Context context = random_context(kWide, 75, 1);
  const auto pool = make_pool(kWide, 5), other_pool = make_pool(kWide, 20);
  Sequence source(*pool), sequence(*other_pool);
  append(source, context, 0, 75);
  append(sequence, context, 0, 5);
  ThreadExecutor threads;
  const auto object = encode(context, source, GetParam(), 5, 75, threads);
  ASSERT_TRUE(object) << object.error().message;
  const Status status = decode(*object, 0.75, 66, sequence, threads);
  ASSERT_TRUE(status) << status.error().message;
  expect_decoded(context, sequence, object->manifest, 0.75, 66, 5);
}

TEST_P(EveryMethod, ChunksDependOnNothingButTheirTokens) {
  const Context context = random_context(kShape, 100, 2);
  const auto pool = make_pool(kShape, 10), shifted_pool = make_pool(kShape, 10);
  Sequence source(*pool), shifted(*shifted_pool);
  append(source, context, 0, 100);
  append(shifted, context, 50, 100);  // other tokens in unused slots, and later in the same ones
  append(shifted, context, 0, 2);
  shifted.truncate(50);
  InlineExecutor alone;
  ThreadExecutor threads;
  Context cut = context;
  for (HeadRows& rows : cut.heads) {
    rows.keys.erase(rows.keys.begin(), rows.keys.begin() + 50 * kShape.head_dim);
    rows.values.erase(rows.values.begin(), rows.values.begin() + 50 * kShape.head_dim);
  }
  const auto expected = encode(context, source, GetParam(), 50, 100, alone);
  // The same tokens at the start of a sequence: same queries, same chunks.
  const Observations observations = observed(context, 50, 100);
  auto encoder = ObjectEncoder::start(*shifted_pool, shifted.slabs(50), 0, identity_of(GetParam(), 50, 100), kOptions,
                                      observations, {});
  ASSERT_TRUE(expected && encoder);
  while (encoder->step(threads)) {
  }
  const auto object = encoder->finish();
  ASSERT_EQ(object.chunks.size(), expected->chunks.size());
  for (std::size_t i = 0; i < object.chunks.size(); ++i) {
    EXPECT_EQ(object.manifest.chunks[i].checksum, expected->manifest.chunks[i].checksum) << i;
    EXPECT_EQ(object.manifest.chunks[i].bytes, object.chunks[i].size());
  }
}

// In layers with windows, what no query after the hit sees ranks last and is not loaded.
TEST(RankedObject, LeavesOutWhatWindowsHide) {
  const std::uint32_t windows[] = {40, 0, 100};
  const Context context = random_context(kShape, 150, 9);
  const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 30);
  Sequence source(*pool);
  append(source, context, 0, 150);
  InlineExecutor alone;
  for (const std::string method : {"snapkv", "knorm+kivi4", "keydiff+layered/int8"}) {
    for (const std::uint32_t first : {0u, 7u}) {
      const auto object = encode(context, source, method, first, 150, alone, {.windows = windows});
      ASSERT_TRUE(object) << object.error().message;
      for (const double keep : {0.1, 0.25, 0.5, 1.0}) {
        for (const std::uint32_t logical : {143u, 120u, 50u, 39u, 1u}) {
          SCOPED_TRACE(::testing::Message() << method << " from " << first << ", keep " << keep << " of " << logical);
          Sequence sequence(*other_pool);
          if (first > 0) append(sequence, context, 0, first);
          ASSERT_TRUE(decode(*object, keep, logical, sequence, alone, Bits::kAll, windows));
          ASSERT_NO_FATAL_FAILURE(
              expect_decoded(context, sequence, object->manifest, keep, logical, first, Bits::kAll, windows));
          if (logical == 143 && first == 7 && keep >= 0.5) {
            EXPECT_EQ(sequence.table(0, 1).tokens, 7u + 39u) << "all that is in sight";
          }
          ASSERT_TRUE(sequence.check_integrity()) << sequence.check_integrity().error().message;
          append(sequence, context, 0, 20);
          ASSERT_TRUE(sequence.check_integrity());
        }
      }
    }
  }
  EXPECT_EQ(other_pool->slabs_free(), other_pool->slabs_total());
}

// Every chunk of the base plane is what layered2 has, and is read alone by it.
TEST(LayeredObject, IsReadAtFewerBitsWithoutItsRefinement) {
  const Context context = random_context(kShape, 150, 8);
  const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 30);
  Sequence source(*pool);
  append(source, context, 0, 150);
  InlineExecutor alone;
  for (const std::string method : {"layered", "knorm+layered", "knorm+layered/int8"}) {
    SCOPED_TRACE(method);
    auto object = encode(context, source, method, 0, 150, alone);
    ASSERT_TRUE(object && object->manifest.has_refinement());
    for (std::size_t i = 0; i < object->chunks.size(); ++i) {
      if (object->manifest.chunks[i].plane == kRefinementPlane) object->chunks[i] = AlignedBuffer();
    }
    for (const double keep : {0.25, 1.0}) {
      Sequence sequence(*other_pool);
      ASSERT_TRUE(decode(*object, keep, 120, sequence, alone, Bits::kBase));
      ASSERT_NO_FATAL_FAILURE(expect_decoded(context, sequence, object->manifest, keep, 120, 0, Bits::kBase));
      EXPECT_LT(object->manifest.bytes_for(keep, Bits::kBase), object->manifest.bytes_for(keep));
    }
    Sequence sequence(*other_pool);
    EXPECT_EQ(decode(*object, 1.0, 120, sequence, alone).error().code, ErrorCode::kCorrupt);
  }
  const auto nested = encode(context, source, "knorm+layered", 0, 150, alone);
  const auto coarse = encode(context, source, "knorm+layered2", 0, 150, alone);
  std::vector<Hash128> base, all;
  for (const std::uint32_t i : nested->manifest.chunks_for(5, Bits::kBase)) {
    base.push_back(nested->manifest.chunks[i].checksum);
  }
  for (const ChunkInfo& chunk : coarse->manifest.chunks) all.push_back(chunk.checksum);
  EXPECT_EQ(base, all);
  EXPECT_FALSE(coarse->manifest.has_refinement());
}

std::string test_name(std::string method) {
  std::ranges::replace_if(method, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return method;
}
INSTANTIATE_TEST_SUITE_P(Objects, EveryMethod, ::testing::ValuesIn(all_methods()),
                         [](const auto& method) { return test_name(method.param); });

TEST(FullObject, RestoresSlabsBitForBitWithHeadsAgreeing) {
  const Context context = random_context(kShape, 100, 3);
  const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 10);
  Sequence source(*pool), sequence(*other_pool);
  append(source, context, 0, 100);
  InlineExecutor alone;
  const auto object = encode(context, source, "full", 0, 100, alone);
  ASSERT_TRUE(object && decode(*object, 1.0, 100, sequence, alone));
  EXPECT_FALSE(sequence.lossy());
  const std::vector<SlabId> from = source.slabs(100), to = sequence.slabs(100);
  ASSERT_EQ(to.size(), from.size());
  for (std::size_t i = 0; i + 1 < from.size(); ++i) {
    for (std::uint32_t page = 0; page < kShape.pages_per_slab(); ++page) {
      EXPECT_EQ(std::memcmp(pool->host_view().page(pool->page_of(from[i], page)).keys,
                            other_pool->host_view().page(other_pool->page_of(to[i], page)).keys, kShape.page_bytes()),
                0);
    }
  }
}

TEST(Object, LeavesAFullPoolAsItWas) {
  const Context context = random_context(kShape, 100, 4);
  const auto pool = make_pool(kShape, 10), small = make_pool(kShape, 4);
  Sequence source(*pool), sequence(*small);
  append(source, context, 0, 100);
  append(sequence, context, 0, 20);
  InlineExecutor alone;
  for (const char* method : {"full", "int8", "knorm"}) {
    const auto object = encode(context, source, method, 20, 100, alone);
    const Status status = decode(*object, 1.0, 80, sequence, alone);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kFull);
    EXPECT_EQ(sequence.length(), 20u);
    EXPECT_EQ(small->slabs_free(), 2u);
    EXPECT_TRUE(sequence.check_integrity());
  }
  EXPECT_TRUE(decode(*encode(context, source, "knorm", 20, 100, alone), 0.25, 80, sequence, alone));
}

TEST(Object, RefusesAnotherShapeAndNonsenseArguments) {
  const Context context = random_context(kShape, 40, 5);
  const auto pool = make_pool(kShape, 4);
  PageShape other = kShape;
  other.page_tokens = 32;
  const auto other_pool = make_pool(other, 4);
  Sequence source(*pool), foreign(*other_pool), sequence(*pool);
  append(source, context, 0, 40);
  InlineExecutor alone;
  const auto object = encode(context, source, "int8", 0, 40, alone);
  EXPECT_EQ(decode(*object, 1.0, 40, foreign, alone).error().code, ErrorCode::kMismatch);
  EXPECT_EQ(decode(*object, 0.0, 40, sequence, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode(*object, 1.1, 40, sequence, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode(*object, 1.0, 41, sequence, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode(*object, 1.0, 0, sequence, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(encode(context, source, "nope+int8", 0, 40, alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(encode(context, source, "knorm+nope", 0, 40, alone).error().code, ErrorCode::kInvalidArgument);
  const auto refused = [&](std::string_view method, std::vector<SlabId> slabs, const Observations& observations) {
    return ObjectEncoder::start(*pool, std::move(slabs), 0, identity_of(method, 0, 40), kOptions, observations, {})
        .error();
  };
  EXPECT_EQ(refused("full", {}, {}).code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused("snapkv", source.slabs(40), {}).message, ::testing::HasSubstr("queries of the last 8 tokens"));
  Observations of_others = observed(context, 0, 40);
  of_others.layers += 1;
  EXPECT_EQ(refused("snapkv", source.slabs(40), of_others).code, ErrorCode::kInvalidArgument);
  const PageShape narrow = {.layers = 1, .kv_heads = 1, .head_dim = 48, .page_tokens = 16};
  const auto narrow_pool = make_pool(narrow, 4);
  Sequence narrow_source(*narrow_pool);
  const Context narrow_context = random_context(narrow, 20, 6);
  append(narrow_source, narrow_context, 0, 20);
  EXPECT_EQ(encode(narrow_context, narrow_source, "kivi4", 0, 20, alone).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(encode(narrow_context, narrow_source, "knorm", 0, 20, alone));
}

TEST(Object, GroupsLayersSoThatChunksAreWorthReading) {
  const PageShape model = {.layers = 30, .kv_heads = 3, .head_dim = 64, .page_tokens = 16};
  for (const char* text : {"full", "int8", "kivi2", "keydiff", "snapkv+kivi4"}) {
    const Method method = *Method::parse(text);
    EXPECT_GE(layers_per_group(model, method, 16), 22u) << "a small entry has few chunks";
    EXPECT_LT(layers_per_group(model, method, 4096), 12u);
  }
  EXPECT_EQ(layers_per_group(model, Method::full(), 4096), 1u);
  EXPECT_EQ(layers_per_group(model, *Method::parse("keydiff"), 4096), 1u);
}

TEST(Manifest, CountsStrataAndBytesOfAKeep) {
  const Context context = random_context(kShape, 100, 7);
  const auto pool = make_pool(kShape, 10);
  Sequence source(*pool);
  append(source, context, 0, 100);
  InlineExecutor alone;
  const Manifest ranked = encode(context, source, "knorm", 0, 100, alone)->manifest;
  EXPECT_EQ(ranked.strata_tokens, (std::vector<std::uint32_t>{10, 25, 50, 75, 100}));
  EXPECT_EQ(ranked.strata_for(0.05), 1u);
  EXPECT_EQ(ranked.strata_for(0.1), 1u);
  EXPECT_EQ(ranked.strata_for(0.11), 2u);
  EXPECT_EQ(ranked.strata_for(0.75), 4u);
  EXPECT_EQ(ranked.strata_for(1.0), 5u);
  EXPECT_EQ(ranked.layer_groups(), 1u);
  EXPECT_EQ(ranked.bytes_for(0.25), ranked.chunks[0].bytes + ranked.chunks[1].bytes);
  const Manifest full = encode(context, source, "full", 0, 100, alone)->manifest;
  EXPECT_EQ(full.strata_for(0.1), 1u);
  EXPECT_EQ(full.bytes_for(1.0), 7 * kShape.slab_bytes());
}

TEST(EntryKey, DependsOnModelParentAndTokens) {
  const std::vector<std::int32_t> tokens = {1, 2, 3}, other = {1, 2};
  const Fingerprint a{{1, 1}, "a"}, renamed{{1, 1}, "b"}, b{{1, 2}, "a"};
  const EntryKey key = entry_key(a, {}, tokens);
  EXPECT_EQ(key, entry_key(renamed, {}, tokens));
  const std::set<EntryKey> keys = {key, entry_key(b, {}, tokens), entry_key(a, key, tokens), entry_key(a, {}, other)};
  EXPECT_EQ(keys.size(), 4u);
}

}  // namespace
}  // namespace shale
