#include "cache/stored_observations.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace shale {
namespace {

// Queries are multiples of 1/16, which fp16 holds; the rest is anything.
Observations sample(bool sums, bool moments, bool repeat) {
  Observations o{.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 8, .tokens = 9, .window = 3};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto values = [&](std::size_t count) {
    std::vector<float> made(count);
    for (float& value : made) value = normal(random) * 1000;
    return made;
  };
  for (std::size_t i = 0; i < 2 * 4 * 3 * 8; ++i) o.queries.push_back(static_cast<float>(i) / 16 - 3);
  if (sums) o.attention_sums = values(2 * 2 * 9);
  if (moments) {
    o.query_mean = values(2 * 4 * 8);
    o.query_covariance = values(2 * 4 * 8 * 8);
    for (std::size_t at = 0; at < o.query_covariance.size(); at += 64) {
      for (std::size_t i = 0; i < 8; ++i) {
        for (std::size_t j = 0; j < i; ++j) o.query_covariance[at + i * 8 + j] = o.query_covariance[at + j * 8 + i];
      }
    }
  }
  if (repeat) o.repeat_attention = values(2 * 2 * 9);
  return o;
}

TEST(StoredObservations, ComeBackBitForBit) {
  for (int parts = 0; parts < 8; ++parts) {
    const Observations o = sample(parts & 1, parts & 2, parts & 4);
    ASSERT_TRUE(o.consistent());
    const auto read = parse_observations(serialize(o).bytes());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->consistent());
    EXPECT_EQ(read->tokens, 9u);
    EXPECT_EQ(read->window, 3u);
    EXPECT_EQ(read->queries, o.queries);
    EXPECT_EQ(read->attention_sums, o.attention_sums);
    EXPECT_EQ(read->query_mean, o.query_mean);
    EXPECT_EQ(read->query_covariance, o.query_covariance);
    EXPECT_EQ(read->repeat_attention, o.repeat_attention);
  }
}

TEST(StoredObservations, EveryFlippedByteAndEveryTruncationIsRefused) {
  const AlignedBuffer whole = serialize(sample(true, true, true));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> bytes(whole.bytes().begin(), whole.bytes().end());
    bytes[i] ^= std::byte{0x20};
    EXPECT_FALSE(parse_observations(bytes)) << "byte " << i;
    EXPECT_FALSE(parse_observations(whole.bytes().first(i))) << "length " << i;
  }
}

// Numbers whose product passes 64 bits must not look like a small blob.
TEST(StoredObservations, HugeDimensionsAreCorrupt) {
  const AlignedBuffer whole = serialize(sample(true, false, false));
  for (const std::size_t field : {8, 12, 16, 20, 24, 28}) {
    std::vector<std::byte> bytes(whole.bytes().begin(), whole.bytes().end());
    const std::uint32_t huge = 0xffffffff;
    std::memcpy(&bytes[field], &huge, sizeof huge);
    EXPECT_EQ(parse_observations(bytes).error().code, ErrorCode::kCorrupt);
  }
}

TEST(StoredObservations, OtherVersionsAreNotTakenForDamage) {
  const AlignedBuffer whole = serialize(sample(true, false, false));
  std::vector<std::byte> bytes(whole.bytes().begin(), whole.bytes().end());
  bytes[6] = std::byte{'1'};
  EXPECT_EQ(parse_observations(bytes).error().code, ErrorCode::kMismatch);
}

TEST(Observations, MergeTakesWhatIsMissing) {
  Observations stored = sample(true, false, false), more = sample(false, true, false);
  const auto sums = stored.attention_sums;
  more.window = 4;
  more.queries.assign(2 * 4 * 4 * 8, 1);
  stored.merge(more);
  EXPECT_TRUE(stored.consistent());
  EXPECT_EQ(stored.window, 4u);
  EXPECT_EQ(stored.attention_sums, sums);
  EXPECT_EQ(stored.query_mean, more.query_mean);
  EXPECT_TRUE(stored.repeat_attention.empty());
}

}  // namespace
}  // namespace shale
