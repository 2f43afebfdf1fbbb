// Keys of blocks are those that vLLM makes with sha256_cbor; the vectors come from hashlib and a CBOR encoder in
// Python.
#include "extents/block_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/sha256.h"

namespace shale::testing {
namespace {

std::string hex(const BlockKey& key) {
  std::string text;
  for (const std::byte byte : key) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::vector<std::byte> many(1000, std::byte{'a'});
  EXPECT_EQ(hex(sha256(many)), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(Sha256, PiecesDoNotMatter) {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (const std::size_t cut : {0u, 1u, 55u, 56u, 63u, 64u, 65u, 128u, 200u, 300u}) {
    Sha256 hash;
    hash.add(std::span(bytes).first(cut)).add(std::span(bytes).subspan(cut));
    EXPECT_EQ(hash.finish(), sha256(bytes)) << cut;
  }
}

TEST(BlockKeys, AreThoseOfVllm) {
  const std::vector<std::int32_t> tokens = {1, 2, 300, 70000, 23, 24, 255, 256, 5};
  const auto keys = block_keys("42", tokens, 4);
  ASSERT_EQ(keys.size(), 2u) << "the last token fills no block";
  EXPECT_EQ(hex(keys[0]), "918646d705a2add7c04825fb30dc1eb02e6933e86688822f7963ddd1cd0e3195");
  EXPECT_EQ(hex(keys[1]), "652541dc92c426e799109f5f1cbb9d0c1c052eedfd2ce53eabbe40ce310d48bf");
  const auto extra = block_keys("42", std::vector<std::int32_t>{-1, 0, 65536, std::numeric_limits<std::int32_t>::max()},
                                4, {"adapter"});
  EXPECT_EQ(hex(extra.at(0)), "20cddd6950bfcdbd938d100b43d3d15379dbcb67acf2c1a4b7142c8d6ec4fd38");
}

TEST(BlockKeys, EverythingThatDiffersMakesAnotherKey) {
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4};
  const auto keys = block_keys("a", tokens, 2);
  EXPECT_NE(keys, block_keys("b", tokens, 2));
  EXPECT_NE(keys, block_keys("a", tokens, 2, {"x"}));
  EXPECT_NE(lineage_keys(keys, {1, 2}), keys);
  EXPECT_NE(lineage_keys(keys, {1, 2}), lineage_keys(keys, {2, 1}));
  EXPECT_EQ(lineage_keys(keys, {1, 2}).size(), keys.size());
}

}  // namespace
}  // namespace shale::testing
