#include "cache/stored_queries.h"

#include <gtest/gtest.h>

#include <cstring>

namespace shale {
namespace {

StoredQueries sample() {
  StoredQueries queries{.layers = 2, .query_heads = 3, .window = 4, .head_dim = 8};
  for (std::size_t i = 0; i < 2 * 3 * 4 * 8; ++i) queries.values.push_back(static_cast<float>(i) / 16 - 3);
  return queries;
}

TEST(StoredQueries, ComeBackAsTheyWere) {
  const StoredQueries queries = sample();
  const auto read = parse_queries(serialize(queries).bytes());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->values, queries.values);  // multiples of 1/16 are exact in fp16
  EXPECT_EQ(read->window, 4u);
}

TEST(StoredQueries, EveryFlippedByteAndEveryTruncationIsCorrupt) {
  const AlignedBuffer whole = serialize(sample());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> bytes(whole.bytes().begin(), whole.bytes().end());
    bytes[i] ^= std::byte{0x20};
    EXPECT_FALSE(parse_queries(bytes)) << "byte " << i;
    EXPECT_FALSE(parse_queries(whole.bytes().first(i))) << "length " << i;
  }
}

}  // namespace
}  // namespace shale
