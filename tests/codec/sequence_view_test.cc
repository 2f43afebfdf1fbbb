#include "codec/views/sequence_view.h"

#include <gtest/gtest.h>

#include <random>

#include "paging/page_tokens.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 2, .kv_heads = 3, .head_dim = 16, .block_size = 8};

std::unique_ptr<PagePool> make_pool(const PageShape& shape) {
  return PagePool::create(shape, 12 * shape.block_bytes()).value();
}

Half value(std::uint32_t position, std::uint32_t plane, std::uint32_t channel) {
  return to_half(static_cast<float>((position * 37 + plane * 11 + channel * 5) % 101) / 32 - 1);
}

// Appends tokens, each with numbers of its own.
void fill(Sequence& sequence, std::uint32_t count) {
  PagePool& pool = sequence.pool();
  const PageShape& shape = pool.shape();
  const std::uint32_t before = sequence.length();
  ASSERT_TRUE(sequence.append(count));
  std::vector<Half> keys(shape.head_dim), values(shape.head_dim);
  for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
    for (std::uint32_t t = 0; t < count; ++t) {
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
        keys[c] = value(before + t, 2 * i, c);
        values[c] = value(before + t, 2 * i + 1, c);
      }
      const auto place = sequence.appended(i / shape.kv_heads, i % shape.kv_heads, t, count);
      write_tokens(shape, pool.host_view().writable_bytes(place.page), place.slot, 1, keys.data(), 1, values.data());
    }
  }
}

Half read(const KvArray<const std::byte>& array, const KvView& view, std::uint32_t layer, std::uint32_t head,
          std::uint32_t token, std::uint32_t channel) {
  const std::uint32_t block = token / view.geometry.block_tokens, slot = token % view.geometry.block_tokens;
  const std::byte* at = array.layers[layer] + static_cast<std::int64_t>(view.physical(block)) * array.block_stride +
                        slot * array.token_stride + head * array.head_stride + channel * array.channel_stride;
  return *reinterpret_cast<const Half*>(at);
}

TEST(SequenceView, SeesPagesWhereTheyLie) {
  const auto pool = make_pool(kShape);
  Sequence other(*pool), sequence(*pool);
  for (const std::uint32_t end : {8u, 24u, 40u}) {  // blocks of two sequences in turn
    fill(other, 8);
    fill(sequence, end - sequence.length());
  }
  Sequence longer = sequence.fork();
  ASSERT_TRUE(longer.append(3));
  const KvView view = view_of(std::as_const(longer), 8, 32);
  ASSERT_TRUE(view.check()) << view.check().error().message;
  EXPECT_EQ(view.geometry, geometry_of(kShape));
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
    for (std::uint32_t t = 0; t < 32; ++t) {
      for (std::uint32_t c = 0; c < kShape.head_dim; ++c) {
        ASSERT_EQ(read(view.keys, view, i / 3, i % 3, t, c), value(8 + t, 2 * i, c));
        ASSERT_EQ(read(view.values, view, i / 3, i % 3, t, c), value(8 + t, 2 * i + 1, c));
      }
    }
  }
  EXPECT_TRUE(view_of(other, 0, 24).check()) << "written to";
}

TEST(SequenceView, PagesOfInt8AreOpaque) {
  const PageShape shape = kShape.with(PageElement::kInt8);
  const auto pool = make_pool(shape);
  Sequence sequence(*pool);
  fill(sequence, 24);
  const KvView view = view_of(std::as_const(sequence), 0, 24);
  ASSERT_TRUE(view.check()) << view.check().error().message;
  ASSERT_TRUE(view.geometry.opaque());
  EXPECT_EQ(view.geometry.bytes(24), 3 * shape.block_bytes());
  const std::byte* second = view.keys.layers[1] + static_cast<std::int64_t>(view.physical(2)) * view.keys.block_stride;
  EXPECT_EQ(second, pool->host_view().bytes(pool->page_of(sequence.blocks(24)[2], shape.page_index(1, 0))).data());
}

// Halves to int8 and back give each token what it was, as far as int8 holds it.
TEST(SequenceView, StagedTokensAreHalvesOfAnyPages) {
  InlineExecutor executor;
  for (const PageElement element : {PageElement::kHalf, PageElement::kInt8}) {
    const PageShape shape = kShape.with(element);
    const auto pool = make_pool(shape);
    Sequence sequence(*pool);
    fill(sequence, 24);
    StagedTokens staged(shape, 16);
    staged.read(sequence, 8, executor);
    ASSERT_TRUE(staged.view().check());
    const KvView view = readable(staged.view());
    for (std::uint32_t t = 0; t < 16; ++t) {
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
        EXPECT_NEAR(to_float(read(view.keys, view, 1, 2, t, c)), to_float(value(8 + t, 10, c)), 0.02);
        EXPECT_NEAR(to_float(read(view.values, view, 0, 1, t, c)), to_float(value(8 + t, 3, c)), 0.02);
      }
    }
    Sequence copy(*pool);
    ASSERT_TRUE(copy.append(16));
    staged.write(copy, 0, executor);
    const auto from = pool->host_view().bytes(sequence.table(1, 0).pages[2].page);
    const auto to = pool->host_view().bytes(copy.table(1, 0).pages[1].page);
    EXPECT_TRUE(std::ranges::equal(from, to)) << "int8 of its own halves is the same int8";
  }
}

}  // namespace
}  // namespace shale
