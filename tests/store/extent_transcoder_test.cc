// Extents made of exact ones: what encoding the tokens themselves gives, or what of the source is damaged.
#include "extents/extent_transcoder.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "codec/small_extent.h"

namespace shale {
namespace {

using Encoded = ExtentEncoder::Encoded;

class ExtentTranscoderTest : public ::testing::Test {
 protected:
  // The extent's blobs, as they were read.
  static std::shared_ptr<ExtentBlobs> blobs_of(Encoded& extent) {
    auto blobs = std::make_shared<ExtentBlobs>();
    blobs->name = extent.manifest.name();
    for (AlignedBuffer& part : extent.parts) blobs->parts.push_back(std::make_shared<AlignedBuffer>(std::move(part)));
    return blobs;
  }
  // Changes a byte of the part.
  static void damage(ExtentBlobs& blobs, std::uint32_t part, std::uint64_t at) {
    AlignedBuffer bytes = copy_of(*blobs.parts[part]);
    bytes.data()[at] ^= std::byte{4};
    blobs.parts[part] = std::make_shared<AlignedBuffer>(std::move(bytes));
  }
  ExtentTranscoder start(const ExtentManifest& manifest, std::shared_ptr<const ExtentBlobs> blobs,
                         std::string_view method) {
    auto started = ExtentTranscoder::start(manifest, std::move(blobs), *Method::parse(method),
                                           {.scorers = kOptions, .model = model_});
    EXPECT_TRUE(started) << started.error().message;
    return std::move(started).value();
  }
  // To its end.
  Result<Encoded> finish(ExtentTranscoder& transcoder) {
    for (bool more = true; more;) {
      SHALE_ASSIGN(more, transcoder.step(alone_));
    }
    return transcoder.finish();
  }
  static void expect_same(const Encoded& made, const Encoded& expected) {
    EXPECT_EQ(made.manifest.name(), expected.manifest.name());
    EXPECT_EQ(made.manifest.tiers, expected.manifest.tiers);
    ASSERT_EQ(made.parts.size(), expected.manifest.parts());
    for (std::uint32_t part = 0; part < made.parts.size(); ++part) {
      EXPECT_EQ(made.parts[part].size(), made.manifest.part_bytes(part));
      EXPECT_TRUE(made.manifest.check_part(part, made.parts[part].bytes())) << part;
    }
  }

  const ModelTraits model_ = {};
  InlineExecutor alone_;
};

TEST_F(ExtentTranscoderTest, MakesWhatEncodingTheTokensGives) {
  for (const char* method : {"int8", "kivi4", "knorm", "knorm+int8"}) {
    SCOPED_TRACE(method);
    Encoded source = small_extent("full");
    ExtentTranscoder transcoder = start(source.manifest, blobs_of(source), method);
    auto made = finish(transcoder);
    ASSERT_TRUE(made) << made.error().message;
    expect_same(*made, small_extent(method));
    EXPECT_EQ(transcoder.failed_chunks(), 0u);
    EXPECT_FALSE(transcoder.ranking_damaged());
  }
}

TEST_F(ExtentTranscoderTest, WorksInPiecesAndSaysWhenItIsOver) {
  Encoded source = small_extent("full");
  ExtentTranscoder transcoder = start(source.manifest, blobs_of(source), "knorm+int8");
  int pieces = 0;
  for (bool more = true; more; ++pieces) {
    const Result<bool> stepped = transcoder.step(alone_);
    ASSERT_TRUE(stepped) << stepped.error().message;
    more = *stepped;
  }
  EXPECT_GT(pieces, 2) << "to decode, and to encode";
  expect_same(transcoder.finish(), small_extent("knorm+int8"));
}

// It may have been made of what only computing shows.
TEST_F(ExtentTranscoderTest, TakesTheRankingThatWasStored) {
  const OwnedView tokens = make_view(kSmallGeometry, Layout::kVllm, kSmallExtentTokens, 1);
  write_small_numbers(tokens.view);
  Ranking ranking{"snapkv", TierMap(kSmallGeometry.layers * kSmallGeometry.kv_heads, kSmallExtentTokens)};
  for (std::uint32_t token = 0; token < kSmallExtentTokens; ++token) ranking.tiers.set(0, token, token % 5);
  const TierMap tiers = ranking.tiers;
  std::vector<Ranking> rankings;
  rankings.push_back(std::move(ranking));
  auto source =
      encode_extent(tokens.readable(), extent_identity(kSmallGeometry, "full", kSmallExtentTokens, kSmallChunkTokens),
                    alone_, std::move(rankings));
  ASSERT_TRUE(source) << source.error().message;
  ExtentTranscoder transcoder = start(source->manifest, blobs_of(*source), "snapkv+int8");
  const auto made = finish(transcoder);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->manifest.tiers, tiers);
  EXPECT_FALSE(transcoder.ranking_damaged());
}

TEST_F(ExtentTranscoderTest, RanksAnewWhatWasNotOrIsDamaged) {
  const Encoded expected = small_extent("knorm+int8");
  for (const bool damaged : {false, true}) {
    Encoded source = small_extent("full");
    const auto ranking = static_cast<std::uint32_t>(source.manifest.blobs.size());
    const ExtentManifest manifest = source.manifest;
    ASSERT_EQ(manifest.parts(), ranking + 1);
    const auto blobs = blobs_of(source);
    if (damaged) {
      damage(*blobs, ranking, 0);
    } else {
      blobs->parts[ranking] = nullptr;
    }
    ExtentTranscoder transcoder = start(manifest, blobs, "knorm+int8");
    const auto made = finish(transcoder);
    ASSERT_TRUE(made) << made.error().message;
    expect_same(*made, expected);
    EXPECT_TRUE(transcoder.ranking_damaged());
  }
}

TEST_F(ExtentTranscoderTest, WhatNobodyWatchedCannotBeRanked) {
  Encoded source = small_extent("full");
  ExtentTranscoder transcoder = start(source.manifest, blobs_of(source), "snapkv+int8");
  const auto made = finish(transcoder);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(transcoder.failed_chunks(), 0u) << "its bytes are as they should be";
}

TEST_F(ExtentTranscoderTest, SaysWhichChunksAreDamaged) {
  for (const std::uint32_t chunk : {0u, 1u}) {
    Encoded source = small_extent("full");
    const ExtentManifest manifest = source.manifest;
    const BlobInfo& blob = manifest.blobs.back();
    ASSERT_EQ(blob.chunks.size(), 2u);
    const auto blobs = blobs_of(source);
    const auto part = static_cast<std::uint32_t>(manifest.blobs.size() - 1);
    damage(*blobs, part, blob.chunks[chunk].offset);
    ExtentTranscoder transcoder = start(manifest, blobs, "int8");
    const auto made = finish(transcoder);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(transcoder.failed_chunks(), 1u << chunk);
  }
}

// Whoever loads the front alone sees it through the window.
TEST_F(ExtentTranscoderTest, KeepsWhatAWindowHidesFromTheEnd) {
  const OwnedView tokens = make_view(kSmallGeometry, Layout::kVllm, kSmallExtentTokens, 1);
  write_small_numbers(tokens.view);
  const auto encoded_by = [&](std::string_view method) {
    ExtentManifest identity = extent_identity(kSmallGeometry, method, kSmallExtentTokens, kSmallChunkTokens);
    identity.windows = {4, 0};  // the first chunk's 16 tokens lie before it
    return encode_extent(tokens.readable(), std::move(identity), alone_).value();
  };
  Encoded source = encoded_by("full");
  ExtentTranscoder transcoder = start(source.manifest, blobs_of(source), "int8");
  const auto made = finish(transcoder);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->manifest.windows, source.manifest.windows);
  expect_same(*made, encoded_by("int8"));
}

TEST_F(ExtentTranscoderTest, WhatTheMethodCannotTakeIsRefused) {
  Encoded source = small_extent(kOpaqueExtent);
  ExtentTranscoder transcoder = start(source.manifest, blobs_of(source), "int8");
  const auto made = finish(transcoder);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace shale
