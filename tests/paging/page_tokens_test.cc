// Tokens in and out of pages of int8: beside what they were before.
#include "paging/page_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shale {
namespace {

constexpr PageShape shape_of(std::uint32_t head_dim, std::uint32_t block_size) {
  return {.layers = 1, .kv_heads = 1, .head_dim = head_dim, .block_size = block_size, .element = PageElement::kInt8};
}

// A page of random tokens whose channels differ in size by a thousand, as those of keys do.
class Page {
 public:
  explicit Page(const PageShape& page_shape, std::uint32_t seed = 1)
      : shape(page_shape), bytes(shape.page_bytes()), rows(2 * shape.key_elements()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = normal(random) * std::pow(10.0f, static_cast<float>(i % 4));
  }
  const float* keys() const { return rows.data(); }
  const float* values() const { return rows.data() + shape.key_elements(); }
  void write(std::uint32_t slot, std::uint32_t count, const Page& from) {
    const std::size_t first = std::size_t{slot} * shape.head_dim;
    write_tokens(shape, bytes, slot, count, {from.keys() + first, from.values() + first, shape.head_dim});
  }
  // One token's keys, then its values.
  std::vector<float> token(std::uint32_t slot) const {
    const std::size_t d = shape.head_dim;
    std::vector<Half> halves(2 * d);
    read_tokens(shape, bytes, slot, 1, halves.data(), 1, halves.data() + d);
    std::vector<float> numbers(2 * d);
    to_float(halves, numbers);
    return numbers;
  }

  PageShape shape;
  std::vector<std::byte> bytes;
  std::vector<float> rows;
};

TEST(Int8Pages, HoldNearlyTwiceAsMany) {
  EXPECT_EQ(shape_of(64, 16).page_bytes(), 2u * (64 * 16 + 2 * 16 * 2));
  EXPECT_EQ(shape_of(256, 64).page_bytes() * 32 / 17, shape_of(256, 64).with(PageElement::kHalf).page_bytes());
}

TEST(Int8Pages, BringNumbersBackWithinHalfAScale) {
  for (const std::uint32_t head_dim : {8u, 32u, 64u, 72u, 80u, 256u}) {
    for (const std::uint32_t block_size : {8u, 64u}) {
      Page page(shape_of(head_dim, block_size));
      page.write(0, block_size, page);
      for (std::uint32_t t = 0; t < block_size; ++t) {
        const std::vector<float> got = page.token(t);
        for (std::uint32_t c = 0; c < 2 * head_dim; ++c) {
          const float* row = (c < head_dim ? page.keys() : page.values()) + std::size_t{t} * head_dim;
          const std::uint32_t channel = c % head_dim, first = channel / kScaleChannels * kScaleChannels;
          float largest = 0;
          for (std::uint32_t i = first; i < std::min(first + kScaleChannels, head_dim); ++i)
            largest = std::max(largest, std::abs(row[i]));
          // A scale is within 2^-11 of largest / 127, and so is a half of what it holds.
          const float bound = largest / 127 / 2 * 1.001f + std::abs(row[channel]) * 0x1p-10f;
          ASSERT_NEAR(got[c], row[channel], bound) << head_dim << " / " << block_size << ", token " << t;
        }
      }
    }
  }
}

TEST(Int8Pages, NumbersThatAreNotFiniteSpoilTheirGroupAlone) {
  for (const float number : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN(), 1e8f}) {
    Page page(shape_of(72, 8));
    page.rows[3 * 72 + 40] = number;
    page.write(0, 8, page);
    for (std::uint32_t t = 0; t < 8; ++t) {
      const std::vector<float> got = page.token(t);
      for (std::uint32_t c = 0; c < got.size(); ++c)
        ASSERT_EQ(std::isnan(got[c]), t == 3 && c >= 32 && c < 64) << t << ", " << c;
    }
  }
}

TEST(Int8Pages, ZerosAndTheSmallestNumbersStayFinite) {
  Page page(shape_of(32, 8));
  std::ranges::fill(page.rows, 0.0f);
  page.rows[5] = 1e-7f;
  page.write(0, 8, page);
  for (const float number : page.token(0)) EXPECT_NEAR(number, 0, 0x1p-18);
}

// A token's bytes follow from its numbers alone, and writing or moving it touches no other's.
TEST(Int8Pages, TokensLieApart) {
  std::mt19937 engine(3);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  for (const std::uint32_t head_dim : {8u, 64u, 80u}) {
    const PageShape shape = shape_of(head_dim, 16);
    Page page(shape), other(shape, 2), fresh(shape);
    page.write(0, 16, page);
    other.write(0, 16, other);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::vector<float>> expected;
      for (std::uint32_t t = 0; t < 16; ++t) expected.push_back(page.token(t));
      const std::uint32_t from = random() % 16, to = random() % 16, count = 1 + random() % (16 - std::max(from, to));
      const bool within = round % 2 == 0;
      const std::vector<std::vector<float>> before = expected;
      for (std::uint32_t i = 0; i < count; ++i) expected[to + i] = within ? before[from + i] : other.token(from + i);
      copy_tokens(shape, within ? page.bytes : other.bytes, from, page.bytes, to, count);
      for (std::uint32_t t = 0; t < 16; ++t) ASSERT_EQ(page.token(t), expected[t]);
    }
    for (std::uint32_t t = 16; t-- > 0;) fresh.write(t, 1, other);
    EXPECT_EQ(fresh.bytes, other.bytes);
  }
}

TEST(Int8Pages, WriteHalvesAsTheirFloats) {
  const PageShape shape = shape_of(72, 16);
  Page page(shape), twin(shape);
  std::vector<Half> keys(shape.key_elements()), values(shape.key_elements());
  for (std::size_t t = 0; t < 16; ++t) {
    for (std::size_t c = 0; c < 72; ++c) {
      keys[c * 16 + t] = to_half(page.keys()[t * 72 + c]);
      twin.rows[t * 72 + c] = to_float(keys[c * 16 + t]);
      values[t * 72 + c] = to_half(page.values()[t * 72 + c]);
      twin.rows[shape.key_elements() + t * 72 + c] = to_float(values[t * 72 + c]);
    }
  }
  write_tokens(shape, page.bytes, 5, 7, keys.data() + 5, 16, values.data() + 5 * 72);
  twin.write(5, 7, twin);
  EXPECT_EQ(page.bytes, twin.bytes);
}

}  // namespace
}  // namespace shale
