// Damaged extents are errors: bits of a small one flipped, every truncation, every field forged; and extents
// checked in under tests/data/extents, written by format version 6: sound ones must decode for ever, damaged ones must
// be refused as their names say. `codec_test --gtest_also_run_disabled_tests --gtest_filter=ExtentCorpus.*Write*` makes
// them anew, for a new format version only.
#include <gtest/gtest.h>

#include <random>

#include "codec/corpus_files.h"
#include "codec/small_extent.h"

namespace shale {
namespace {

constexpr std::array kMethods = {"full",           "opaque",
                                 "int8",           "kivi4",
                                 "knorm",          "knorm+kivi2",
                                 "knorm+layered",  "knorm+int8/kivi2",
                                 "turboquant4",    "cachegen",
                                 "knorm+cachegen", "adakv:knorm+int8",
                                 "layered",        "global:knorm+cachegen"};

bool is_refusal(ErrorCode code) { return code == ErrorCode::kCorrupt || code == ErrorCode::kMismatch; }

// And every quantizer that these leave out.
std::vector<std::string> all_of_small_extents() {
  std::vector<std::string> methods(kMethods.begin(), kMethods.end());
  for (const std::string_view quantizer : quantizer_names()) {
    const bool coded = std::ranges::any_of(kMethods, [&](std::string_view method) {
      return method == quantizer || method.ends_with("+" + std::string(quantizer));
    });
    if (quantizer != "none" && !coded) methods.emplace_back(quantizer);
  }
  return methods;
}

class DamagedExtent : public ::testing::TestWithParam<std::string> {
 protected:
  DamagedExtent() : extent_(small_extent(GetParam())), manifest_(extent_.manifest.serialize()) {}
  ExtentEncoder::Encoded extent_;
  AlignedBuffer manifest_;
};

TEST_P(DamagedExtent, SoundBytesDecode) {
  const auto manifest = ExtentManifest::parse(manifest_.bytes());
  ASSERT_TRUE(manifest) << manifest.error().message;
  const Status status = try_decode_extent(*manifest, extent_.parts);
  EXPECT_TRUE(status) << status.error().message;
}

TEST_P(DamagedExtent, EveryFlippedBitOfAManifestIsRefused) {
  for (std::size_t bit = 0; bit < manifest_.size() * 8; ++bit) {
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
    const auto manifest = ExtentManifest::parse(manifest_.bytes());
    ASSERT_TRUE(!manifest && is_refusal(manifest.error().code)) << "bit " << bit;
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

TEST_P(DamagedExtent, EveryTruncationOrExtensionOfAManifestIsRefused) {
  for (std::size_t size = 0; size < manifest_.size(); ++size) {
    const auto manifest = ExtentManifest::parse(manifest_.bytes().first(size));
    ASSERT_TRUE(!manifest && manifest.error().code == ErrorCode::kCorrupt) << size;
  }
  std::vector<std::byte> longer(manifest_.bytes().begin(), manifest_.bytes().end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(ExtentManifest::parse(longer).error().code, ErrorCode::kCorrupt);
}

// Whatever a forged manifest says, parsing and decoding by it stays within bounds.
TEST_P(DamagedExtent, EveryForgedBitOfAManifestIsRefusedOrHarmless) {
  for (std::size_t bit = 0; bit < (manifest_.size() - 16) * 8; ++bit) {
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
    reseal(manifest_.bytes());
    const auto manifest = ExtentManifest::parse(manifest_.bytes());
    if (manifest) {
      ASSERT_EQ(manifest->keys.size() * manifest->geometry.block_tokens, manifest->tokens);
      ASSERT_EQ(manifest->serialize().size(), manifest_.size());
      static_cast<void>(try_decode_extent(*manifest, extent_.parts));
    } else {
      ASSERT_TRUE(is_refusal(manifest.error().code)) << "bit " << bit << ": " << manifest.error().message;
    }
    manifest_.data()[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

// Of every seventh byte, so that all sections of all chunks are met.
TEST_P(DamagedExtent, FlippedBytesOfABlobAreRefused) {
  for (std::size_t p = 0; p < extent_.manifest.blobs.size(); ++p) {
    for (const BlobChunk& chunk : extent_.manifest.blobs[p].chunks) {
      for (std::size_t byte = chunk.offset; byte < chunk.offset + chunk.bytes; byte += 7) {
        extent_.parts[p].data()[byte] ^= std::byte{1} << byte % 8;
        const Status status = try_decode_extent(extent_.manifest, extent_.parts);
        ASSERT_TRUE(!status && status.error().code == ErrorCode::kCorrupt) << "blob " << p << " byte " << byte;
        extent_.parts[p].data()[byte] ^= std::byte{1} << byte % 8;
      }
    }
  }
}

// Bytes that pass the checksum and mean nothing.
TEST_P(DamagedExtent, ForgedBlobsAreRefusedOrHarmless) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    for (std::size_t p = 0; p < extent_.manifest.blobs.size(); ++p) {
      for (BlobChunk& chunk : extent_.manifest.blobs[p].chunks) {
        const auto bytes = extent_.parts[p].bytes().subspan(chunk.offset, chunk.bytes);
        // Half of the time a sound beginning, where packed chunks say their tables.
        for (std::size_t i = round % 2 == 0 ? 0 : std::min<std::size_t>(24, bytes.size()); i < bytes.size(); ++i) {
          bytes[i] = static_cast<std::byte>(random());
        }
        chunk.checksum = hash128(bytes);
      }
    }
    const Status status = try_decode_extent(extent_.manifest, extent_.parts);
    ASSERT_TRUE(status || is_refusal(status.error().code));
  }
}

INSTANTIATE_TEST_SUITE_P(Extents, DamagedExtent, ::testing::ValuesIn(all_of_small_extents()), [](const auto& method) {
  std::string name = method.param;
  std::ranges::replace_if(name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(TierMap, RefusesTiersThatThereAreNotAndTokensBeyondItsOwn) {
  TierMap map(2, 70);
  map.set(1, 69, kImportanceTiers - 1);
  std::vector<std::byte> bytes(map.bytes().begin(), map.bytes().end());
  EXPECT_EQ(*TierMap::parse(2, 70, bytes), map);
  EXPECT_EQ(TierMap::parse(2, 71, bytes)->tokens(), 71u);
  EXPECT_EQ(TierMap::parse(2, 64, bytes).error().code, ErrorCode::kCorrupt) << "another length";
  EXPECT_EQ(TierMap::parse(2, 69, bytes).error().code, ErrorCode::kCorrupt) << "a token beyond";
  for (const std::size_t plane : {0, 8, 16}) bytes[plane] = std::byte{1};  // token 0 of head 0 in tier 7
  EXPECT_EQ(TierMap::parse(2, 70, bytes).error().code, ErrorCode::kCorrupt);
}

const CorpusFiles& files() {
  static const CorpusFiles files("extents");
  return files;
}

TEST(ExtentCorpus, SoundExtentsDecode) {
  for (const std::string name : kMethods) {
    SCOPED_TRACE(name);
    const auto manifest = ExtentManifest::parse(files().read(CorpusFiles::file_of(name) + ".manifest"));
    ASSERT_TRUE(manifest) << manifest.error().message;
    std::vector<AlignedBuffer> parts;
    for (std::uint32_t i = 0; i < manifest->parts(); ++i) {
      const auto bytes = files().read(CorpusFiles::file_of(name) + "." + std::to_string(i));
      ASSERT_EQ(bytes.size(), manifest->part_bytes(i));
      std::ranges::copy(bytes, parts.emplace_back(bytes.size()).data());
    }
    const OwnedView sink = make_view(manifest->geometry, Layout::kPlain, kSmallExtentTokens, 2);
    const OwnedView source = make_view(manifest->geometry, Layout::kPlain, kSmallExtentTokens, 3);
    write_small_numbers(source.view);
    auto decoder = ExtentDecoder::start(*manifest, {.tokens = kSmallExtentTokens}, sink.view);
    InlineExecutor alone;
    ASSERT_TRUE(decoder && decode_ranges(*decoder, parts, alone));
    if (name == "full" || name == "opaque" || name == "knorm") {
      EXPECT_TRUE(same_tokens(source.view, 0, kSmallExtentTokens, sink.view));
      continue;
    }
    const float tolerance = name.contains("kivi2") || name == "turboquant4" ? 1.4f : 0.3f;
    for_each_element(source.view, 0, kSmallExtentTokens,
                     [&](std::uint32_t layer, bool values, std::uint32_t token, std::uint32_t head, std::uint32_t c,
                         const std::byte* at, std::size_t) {
                       const auto& array = values ? sink.view.values : sink.view.keys;
                       const float stored = read_element(KvElement::kF16, at);
                       const float got =
                           read_element(KvElement::kF16, element_at(sink.view, array, layer, token, head, c));
                       ASSERT_NEAR(got, stored, tolerance);
                     });
  }
}

TEST(ExtentCorpus, DamagedManifestsAreRefusedAsTheirNamesSay) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files().folder())) {
    const std::string name = entry.path().filename();
    const bool corrupt = name.starts_with("corrupt-"), mismatch = name.starts_with("mismatch-");
    if (!corrupt && !mismatch) continue;
    ++seen;
    const auto manifest = ExtentManifest::parse(files().read(entry.path()));
    ASSERT_FALSE(manifest) << name;
    EXPECT_EQ(manifest.error().code, corrupt ? ErrorCode::kCorrupt : ErrorCode::kMismatch) << name;
  }
  EXPECT_GE(seen, 24);
}

TEST(ExtentCorpus, DISABLED_Write) {
  for (const std::string name : kMethods) {
    const ExtentEncoder::Encoded extent = small_extent(name);
    files().write(CorpusFiles::file_of(name) + ".manifest", extent.manifest.serialize().bytes());
    for (std::size_t i = 0; i < extent.parts.size(); ++i) {
      files().write(CorpusFiles::file_of(name) + "." + std::to_string(i), extent.parts[i].bytes());
    }
  }
  const auto damaged = [&](std::string_view method, const std::string& name, const auto& change) {
    ExtentManifest manifest = small_extent(method).manifest;
    change(manifest);
    files().write("corrupt-" + name + ".manifest", manifest.serialize().bytes());
  };
  using M = ExtentManifest;
  damaged("full", "keys", [](M& m) { m.keys.pop_back(); });
  damaged("full", "tokens", [](M& m) { m.tokens = 16; });
  damaged("full", "tokens-none", [](M& m) { m.tokens = 0; });
  damaged("full", "tokens-in-a-block", [](M& m) { m.tokens = 23; });
  damaged("full", "chunk-tokens", [](M& m) { m.chunk_tokens = 12; });
  damaged("full", "chunks-too-many", [](M& m) { m.chunk_tokens = 1; });
  damaged("full", "token-ids", [](M& m) { m.token_ids.pop_back(); });
  damaged("full", "windows", [](M& m) { m.windows = {8}; });
  damaged("full", "layers", [](M& m) { m.geometry.layers = 3; });
  damaged("full", "element", [](M& m) { m.geometry.element = static_cast<KvElement>(9); });
  damaged("full", "element-wider", [](M& m) { m.geometry.element = KvElement::kF32; });
  damaged("full", "packing", [](M& m) { m.packing = static_cast<KvPacking>(3); });
  damaged("int8", "packing-of-codes", [](M& m) { m.packing = KvPacking::kTokensHeads; });
  damaged("opaque", "opaque-lossy", [](M& m) { m.method = {"", "int8"}; });
  damaged("opaque", "opaque-heads", [](M& m) { m.geometry.kv_heads = 1; });
  damaged("full", "layers-per-group", [](M& m) { m.layers_per_group = 0; });
  damaged("full", "chunk-bytes", [](M& m) { m.blobs[0].chunks[0].bytes += 64; });
  damaged("full", "chunk-missing", [](M& m) { m.blobs[0].chunks.pop_back(); });
  damaged("full", "ranking-twice", [](M& m) { m.rankings.push_back(m.rankings[0]); });
  damaged("full", "ranking-name", [](M& m) { m.rankings[0].name = "nobody"; });
  damaged("knorm", "scorer", [](M& m) { m.method.scorer = "nobody"; });
  damaged("knorm+int8", "quantizers", [](M& m) { m.method.quantizer = "int8/int8"; });
  damaged("knorm", "tiers-missing", [](M& m) { m.tiers = {}; });
  damaged("knorm+int8", "tiers-of-other-tokens", [](M& m) {
    for (std::uint32_t token = 0; token < m.tokens; ++token) m.tiers.set(0, token, 0);
  });
  damaged("knorm+layered", "refinement-missing",
          [](M& m) { std::erase_if(m.blobs, [](const BlobInfo& blob) { return blob.plane == kRefinementPlane; }); });
  AlignedBuffer bytes = small_extent("knorm+kivi2").manifest.serialize();
  files().write("corrupt-truncated.manifest", bytes.bytes().first(bytes.size() / 2));
  bytes.data()[bytes.size() - 1] ^= std::byte{1};
  files().write("corrupt-checksum.manifest", bytes.bytes());
  bytes.data()[8] = std::byte{99};
  reseal(bytes.bytes());
  files().write("mismatch-version.manifest", bytes.bytes());
  bytes.data()[0] = std::byte{'X'};
  reseal(bytes.bytes());
  files().write("corrupt-magic.manifest", bytes.bytes());
}

}  // namespace
}  // namespace shale
