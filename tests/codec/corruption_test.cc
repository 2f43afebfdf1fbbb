// Damaged objects are errors: every bit of a small one flipped, every truncation, every field forged.
#include <gtest/gtest.h>

#include <random>

#include "codec/layout.h"
#include "codec/small_object.h"

namespace shale {
namespace {

class Damaged : public ::testing::TestWithParam<const char*> {
 protected:
  Damaged() : object_(small_object(GetParam())), manifest_(object_.manifest.serialize()) {
    for (const AlignedBuffer& chunk : object_.chunks) chunks_.push_back(chunk.bytes());
  }
  ObjectEncoder::Encoded object_;
  AlignedBuffer manifest_;
  std::vector<std::span<const std::byte>> chunks_;
};

bool is_refusal(ErrorCode code) { return code == ErrorCode::kCorrupt || code == ErrorCode::kMismatch; }

TEST_P(Damaged, SoundBytesDecode) {
  const auto manifest = Manifest::parse(manifest_.bytes());
  ASSERT_TRUE(manifest);
  EXPECT_TRUE(try_decode(*manifest, chunks_));
}

TEST_P(Damaged, EveryFlippedBitOfAManifestIsRefused) {
  for (std::size_t bit = 0; bit < manifest_.size() * 8; ++bit) {
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
    const auto manifest = Manifest::parse(manifest_.bytes());
    ASSERT_TRUE(!manifest && is_refusal(manifest.error().code)) << "bit " << bit;
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

TEST_P(Damaged, EveryTruncationOrExtensionOfAManifestIsRefused) {
  for (std::size_t size = 0; size < manifest_.size(); ++size) {
    const auto manifest = Manifest::parse(manifest_.bytes().first(size));
    ASSERT_TRUE(!manifest && manifest.error().code == ErrorCode::kCorrupt) << size;
  }
  std::vector<std::byte> longer(manifest_.bytes().begin(), manifest_.bytes().end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(Manifest::parse(longer).error().code, ErrorCode::kCorrupt);
}

// Whatever a forged manifest says, parsing and decoding by it stays within bounds.
TEST_P(Damaged, EveryForgedBitOfAManifestIsRefusedOrHarmless) {
  const Manifest original = object_.manifest;
  for (std::size_t bit = 0; bit < (manifest_.size() - 16) * 8; ++bit) {
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
    reseal(manifest_.bytes());
    const auto manifest = Manifest::parse(manifest_.bytes());
    if (manifest) {
      ASSERT_EQ(manifest->tokens, original.tokens);
      ASSERT_EQ(manifest->chunks.size(), original.chunks.size());
      static_cast<void>(try_decode(*manifest, chunks_));
    } else {
      ASSERT_TRUE(is_refusal(manifest.error().code)) << "bit " << bit << ": " << manifest.error().message;
    }
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

TEST_P(Damaged, EveryFlippedBitOfAChunkIsRefused) {
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const std::span<std::byte> chunk = object_.chunks[c].bytes();
    for (std::size_t byte = 0; byte < chunk.size(); ++byte) {
      chunk[byte] ^= std::byte{1} << byte % 8;
      const Status status = try_decode(object_.manifest, chunks_);
      ASSERT_TRUE(!status && status.error().code == ErrorCode::kCorrupt) << "chunk " << c << " byte " << byte;
      chunk[byte] ^= std::byte{1} << byte % 8;
    }
  }
}

TEST_P(Damaged, EveryTruncationOfAChunkIsRefused) {
  const auto whole = chunks_[0];
  for (std::size_t size = 0; size < whole.size(); ++size) {
    chunks_[0] = whole.first(size);
    const Status status = try_decode(object_.manifest, chunks_);
    ASSERT_TRUE(!status && status.error().code == ErrorCode::kCorrupt) << size;
  }
}

// Bytes that pass the checksum and mean nothing.
TEST_P(Damaged, ForgedChunksAreRefusedOrHarmless) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      const std::span<std::byte> chunk = object_.chunks[c].bytes();
      const std::size_t first = round % 2 == 0 ? 0 : 8;  // half of the time, a sound first bitmap
      for (std::size_t i = first; i < chunk.size(); ++i) chunk[i] = static_cast<std::byte>(random());
      object_.manifest.chunks[c].checksum = hash128(chunk);
    }
    const Status status = try_decode(object_.manifest, chunks_);
    ASSERT_TRUE(status || is_refusal(status.error().code));
  }
}

INSTANTIATE_TEST_SUITE_P(Objects, Damaged,
                         ::testing::Values("full", "int8", "knorm", "streaming+kivi2", "knorm+layered/kivi4",
                                           "cachegen", "knorm+cachegen/int8", "adakv:knorm+int8",
                                           "global:knorm+cachegen"),
                         [](const auto& method) {
                           std::string name = method.param;
                           std::ranges::replace_if(name, [](unsigned char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST(ForgedPositions, AreCorruptThoughTheChecksumIsRight) {
  ObjectEncoder::Encoded object = small_object("knorm");
  const std::span<std::byte> chunk = object.chunks[4].bytes();
  for (const std::byte forged : {std::byte{0}, std::byte{0xff}}) {
    std::fill_n(chunk.begin(), 8, forged);
    object.manifest.chunks[4].checksum = hash128(chunk);
    std::vector<std::span<const std::byte>> chunks;
    for (const AlignedBuffer& each : object.chunks) chunks.push_back(each.bytes());
    const Status status = try_decode(object.manifest, chunks);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Manifest, AnotherVersionIsAMismatch) {
  AlignedBuffer bytes = small_object("full").manifest.serialize();
  bytes.data()[8] = std::byte{kInt8ObjectFormatVersion + 1};
  reseal(bytes.bytes());
  EXPECT_EQ(Manifest::parse(bytes.bytes()).error().code, ErrorCode::kMismatch);
}

TEST(Decoder, TakesEachChunkOnce) {
  const ObjectEncoder::Encoded object = small_object("knorm");
  const auto pool = make_pool(kSmallShape, 16);
  Sequence sequence(*pool);
  InlineExecutor alone;
  auto decoder = ObjectDecoder::start(object.manifest, 0.1, kSmallTokens, sequence);
  ASSERT_TRUE(decoder);
  EXPECT_TRUE(decoder->decode(0, object.chunks[0].bytes(), alone));
  EXPECT_EQ(decoder->decode(0, object.chunks[0].bytes(), alone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decoder->decode(1, object.chunks[1].bytes(), alone).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shale
