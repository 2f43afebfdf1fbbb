#include "core/hash.h"

#include <gtest/gtest.h>

#include <cstring>

namespace shale {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// From the test vectors of XXH3's 128-bit variant with seed 0.
TEST(Hash, KnownVectors) {
  EXPECT_EQ(hash128({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128(bytes_of("abc")).hex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, TheShortOneChains) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2u);  // XXH3's 64-bit variant with seed 0
  EXPECT_NE(hash64(bytes_of("abc"), 1), hash64(bytes_of("abc"), 2));
  EXPECT_EQ(hash64(bytes_of("abc"), 1), hash64(bytes_of("abc"), 1));
}

TEST(Hash, HexGoesThereAndBack) {
  const Hash128 hash = hash128(bytes_of("a page"));
  EXPECT_EQ(Hash128::parse(hash.hex()).value(), hash);
  for (const char* text : {"", "12", "99aa06d3014798d86001c324468d497", "99aa06d3014798d86001c324468d497fa",
                           "99aa06d3014798d86001c324468d497g", "+9aa06d3014798d86001c324468d497f"}) {
    const auto parsed = Hash128::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Hash, PiecesDoNotRunTogether) {
  EXPECT_NE(Hasher().add("ab").add("c").finish(), Hasher().add("a").add("bc").finish());
  EXPECT_NE(Hasher().add("").finish(), Hasher().finish());
  EXPECT_EQ(Hasher().add("ab").add(7u).finish(), Hasher().add("ab").add(7u).finish());
}

TEST(Hash, EveryFlippedByteChangesIt) {
  std::string text(300, 'x');
  const Hash128 before = hash128(bytes_of(text));
  for (char& letter : text) {
    letter = 'y';
    EXPECT_NE(hash128(bytes_of(text)), before);
    letter = 'x';
  }
}

}  // namespace
}  // namespace shale
