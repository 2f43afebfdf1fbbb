// Stored objects from and into pools of int8.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "codec/object_fixture.h"

namespace shale {
namespace {

constexpr PageShape kHalves = {.layers = 3, .kv_heads = 2, .head_dim = 32, .page_tokens = 16};
const PageShape kShape = kHalves.with(PageElement::kInt8);

// From and into the middle of pages, whole and in part; and never into a pool of halves, nor the reverse.
TEST(Int8Pages, AreStoredInFullAndComeBackTokenByToken) {
  const Context context = random_context(kShape, 150, 3);
  InlineExecutor alone;
  for (const auto& [first, end, logical] : {std::array{0u, 150u, 150u}, std::array{0u, 150u, 70u},
                                            std::array{37u, 149u, 112u}, std::array{37u, 149u, 50u}}) {
    for (const std::uint32_t shift : {0u, 5u}) {
      const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 12);
      Sequence source(*pool), sequence(*other_pool);
      append(source, context, 0, 150);
      if (shift > 0) append(sequence, context, 0, shift);
      const auto object = encode(context, source, "full", first, end, alone);
      ASSERT_TRUE(object);
      const auto manifest = Manifest::parse(object->manifest.serialize().bytes());
      ASSERT_TRUE(manifest) << manifest.error().message;
      EXPECT_EQ(manifest->shape, kShape);
      ASSERT_TRUE(decode(*object, 1.0, logical, sequence, alone));
      for (std::uint32_t i = 0; i < kShape.pages_per_slab(); ++i) {
        const HeadRows all = held(source, i / kShape.kv_heads, i % kShape.kv_heads, first);
        const HeadRows got = held(sequence, i / kShape.kv_heads, i % kShape.kv_heads, shift);
        const std::size_t numbers = std::size_t{logical} * kShape.head_dim;
        ASSERT_EQ(got.keys, std::vector(all.keys.begin(), all.keys.begin() + static_cast<std::ptrdiff_t>(numbers)));
        ASSERT_EQ(got.values,
                  std::vector(all.values.begin(), all.values.begin() + static_cast<std::ptrdiff_t>(numbers)));
      }
      const auto halves = make_pool(kHalves, 12);
      Sequence exact(*halves);
      EXPECT_EQ(decode(*object, 1.0, logical, exact, alone).error().code, ErrorCode::kMismatch);
    }
  }
}

TEST(Int8Pages, TakeWhatAQuantizerStored) {
  const Context context = random_context(kShape, 150, 3);
  const auto pool = make_pool(kShape, 10), other_pool = make_pool(kShape, 12);
  Sequence source(*pool), sequence(*other_pool);
  append(source, context, 0, 150);
  ThreadExecutor threads;
  const auto object = encode(context, source, "int8", 37, 150, threads);
  ASSERT_TRUE(object && decode(*object, 1.0, 113, sequence, threads));
  for (std::uint32_t i = 0; i < kShape.pages_per_slab(); ++i) {
    const HeadRows got = held(sequence, i / kShape.kv_heads, i % kShape.kv_heads);
    for (std::size_t token = 0; token < 113; ++token) {
      float largest = 0;
      for (std::uint32_t c = 0; c < kShape.head_dim; ++c)
        largest = std::max(largest, std::abs(context.heads[i].key(37 + token, c)));
      for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {  // three times rounded to one of 255 steps
        ASSERT_NEAR(got.key(token, c), context.heads[i].key(37 + token, c), 1.6f * largest / 127);
      }
    }
  }
}

}  // namespace
}  // namespace shale
