// Objects checked in under tests/data/objects, written by format version 4: sound ones must decode for ever, damaged
// ones must be refused as their names say. `codec_test --gtest_also_run_disabled_tests --gtest_filter=Corpus.*Write*`
// makes them anew, for a new format version only.
#include <gtest/gtest.h>

#include "codec/corpus_files.h"
#include "codec/small_object.h"

namespace shale {
namespace {

const CorpusFiles& files() {
  static const CorpusFiles files("objects");
  return files;
}

constexpr std::array kSound = {"full",
                               "int8",
                               "kivi4",
                               "streaming",
                               "knorm+kivi2",
                               "knorm+layered",
                               "knorm+int8/kivi2",
                               "turboquant4",
                               "cachegen",
                               "knorm+cachegen",
                               "adakv:knorm+int8",
                               "global:knorm+layered"};

TEST(Corpus, SoundObjectsDecode) {
  const Context context = small_context();
  for (const std::string name : kSound) {
    SCOPED_TRACE(name);
    const auto manifest = Manifest::parse(files().read(CorpusFiles::file_of(name) + ".manifest"));
    ASSERT_TRUE(manifest) << manifest.error().message;
    const auto pool = make_pool(kSmallShape, 16);
    Sequence sequence(*pool);
    InlineExecutor alone;
    auto decoder = ObjectDecoder::start(*manifest, 1.0, kSmallTokens, sequence);
    ASSERT_TRUE(decoder);
    for (std::uint32_t i = 0; i < manifest->chunks.size(); ++i) {
      const Status status =
          decoder->decode(i, files().read(CorpusFiles::file_of(name) + "." + std::to_string(i)), alone);
      ASSERT_TRUE(status) << status.error().message;
    }
    for (std::uint32_t layer = 0; layer < kSmallShape.layers; ++layer) {
      const HeadRows got = held(sequence, layer, 0);
      ASSERT_EQ(got.tokens, kSmallTokens);
      const bool exact = name == "full" || name == "streaming";
      const float tolerance = exact ? 0 : name.contains("kivi2") || name == "turboquant4" ? 1.4f : 0.3f;
      double sum = 0, expected = 0;
      for (const float value : got.values) sum += value;
      for (const float value : context.heads[layer].values) expected += value;
      EXPECT_NEAR(sum / static_cast<double>(got.values.size()), expected / static_cast<double>(got.values.size()),
                  tolerance / 4);
      if (!manifest->method.scorer.empty()) continue;
      for (std::size_t i = 0; i < got.keys.size(); ++i) {
        ASSERT_NEAR(got.keys[i], context.heads[layer].keys[i], tolerance) << i;
      }
    }
  }
}

TEST(Corpus, DamagedManifestsAreRefusedAsTheirNamesSay) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files().folder())) {
    const std::string name = entry.path().filename();
    const bool corrupt = name.starts_with("corrupt-"), mismatch = name.starts_with("mismatch-");
    if (!corrupt && !mismatch) continue;
    ++seen;
    const auto manifest = Manifest::parse(files().read(entry.path()));
    ASSERT_FALSE(manifest) << name;
    EXPECT_EQ(manifest.error().code, corrupt ? ErrorCode::kCorrupt : ErrorCode::kMismatch) << name;
  }
  EXPECT_GE(seen, 16);
}

TEST(Corpus, DISABLED_Write) {
  for (const std::string name : kSound) {
    const ObjectEncoder::Encoded object = small_object(name);
    files().write(CorpusFiles::file_of(name) + ".manifest", object.manifest.serialize().bytes());
    for (std::size_t i = 0; i < object.chunks.size(); ++i) {
      files().write(CorpusFiles::file_of(name) + "." + std::to_string(i), object.chunks[i].bytes());
    }
  }
  const Manifest sound = small_object("knorm+kivi2").manifest;
  const auto damaged = [&](const std::string& name, const auto& change) {
    Manifest manifest = sound;
    change(manifest);
    files().write(name, manifest.serialize().bytes());
  };
  damaged("corrupt-key.manifest", [](Manifest& m) { m.key.low ^= 1; });
  damaged("corrupt-tokens.manifest", [](Manifest& m) { m.tokens.push_back(7); });
  damaged("corrupt-strata.manifest", [](Manifest& m) { m.strata_tokens[1] = 9; });
  damaged("corrupt-chunk-bytes.manifest", [](Manifest& m) { m.chunks[2].bytes += 64; });
  damaged("corrupt-chunk-order.manifest", [](Manifest& m) { std::swap(m.chunks[0], m.chunks[1]); });
  damaged("corrupt-chunk-missing.manifest", [](Manifest& m) { m.chunks.pop_back(); });
  damaged("corrupt-plane.manifest", [](Manifest& m) { m.chunks[0].plane = kRefinementPlane; });
  damaged("corrupt-quantizers.manifest", [](Manifest& m) { m.method.quantizer = "kivi2/kivi2"; });
  damaged("corrupt-layers.manifest", [](Manifest& m) { m.shape.layers = 3; });
  damaged("corrupt-page-tokens.manifest", [](Manifest& m) { m.shape.page_tokens = 12; });
  damaged("corrupt-scorer.manifest", [](Manifest& m) { m.method.scorer = "nobody"; });
  damaged("corrupt-head-strata-unasked.manifest", [](Manifest& m) { m.head_strata.assign(10, 1); });
  Manifest budgeted = small_object("adakv:knorm+int8").manifest;
  ++budgeted.head_strata[0];
  files().write("corrupt-head-strata-sum.manifest", budgeted.serialize().bytes());
  --budgeted.head_strata[0];
  budgeted.head_strata.pop_back();
  files().write("corrupt-head-strata-missing.manifest", budgeted.serialize().bytes());
  AlignedBuffer bytes = sound.serialize();
  files().write("corrupt-truncated.manifest", bytes.bytes().first(bytes.size() / 2));
  bytes.data()[bytes.size() - 1] ^= std::byte{1};
  files().write("corrupt-checksum.manifest", bytes.bytes());
  bytes.data()[8] = std::byte{99};
  reseal(bytes.bytes());
  files().write("mismatch-version.manifest", bytes.bytes());
  bytes.data()[0] = std::byte{'X'};
  reseal(bytes.bytes());
  files().write("corrupt-magic.manifest", bytes.bytes());
  Manifest nested = small_object("knorm+layered").manifest;
  std::erase_if(nested.chunks, [](const ChunkInfo& chunk) { return chunk.plane == kRefinementPlane; });
  files().write("corrupt-refinement-missing.manifest", nested.serialize().bytes());
}

}  // namespace
}  // namespace shale
