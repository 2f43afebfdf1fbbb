// cachegen's packing and tables: what goes in comes out, in about as few bits as can be; damaged tables, those of
// another model, and chunks of other tables are refused.
#include "quantizers/cachegen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "codec/small_extent.h"
#include "quantizers/cachegen_tables.h"

namespace shale {
namespace {

constexpr std::uint32_t kLayers = 3, kHeads = 2, kDim = 32, kTokens = 200;
constexpr Hash128 kModel{7, 9};

// Tokens that drift, as neighbours do.
HeadRows drifting_head(std::uint64_t seed, float step = 0.2f) {
  HeadRows rows = random_head(kTokens, kDim, seed);
  for (std::uint32_t i = 1; i < kTokens; ++i) {
    for (std::uint32_t c = 0; c < kDim; ++c) {
      rows.key(i, c) = to_float(to_half(rows.key(i - 1, c) + step * (rows.key(i, c) - rows.key(0, c))));
      rows.value(i, c) = to_float(to_half(0.8f * rows.value(i - 1, c) + step * rows.value(i, c)));
    }
  }
  return rows;
}

CachegenTables calibrated(std::uint64_t seed) {
  CachegenCalibrator calibrator(kLayers, kHeads, kDim);
  for (const bool counting : {false, true}) {
    for (std::uint32_t index = 0; index < kLayers * kHeads; ++index) {
      const HeadMemory memory(drifting_head(seed + index), kTokens);
      counting ? calibrator.add_codes(index, memory.const_rows()) : calibrator.add_spread(index, memory.const_rows());
    }
    if (!counting) calibrator.set_widths();
  }
  return calibrator.finish();
}

std::vector<std::byte> codes_of(const Quantizer& quantizer, const HeadRows& rows) {
  std::vector<std::byte> codes(quantizer.base_bytes(rows.tokens, rows.head_dim));
  quantizer.encode(HeadMemory(rows, rows.tokens).const_rows(), {codes});
  return codes;
}

std::vector<std::byte> packed(const Quantizer& quantizer, std::span<const std::byte> codes, std::uint32_t tokens) {
  std::vector<std::byte> bytes;
  quantizer.pack(codes, tokens, kDim, bytes);
  return bytes;
}

TEST(Cachegen, UnpacksWhatWasPackedWhateverItIs) {
  const CachegenTables tables = calibrated(1);
  std::mt19937_64 random(1);
  for (const CachegenTables* of : {&tables, static_cast<const CachegenTables*>(nullptr)}) {
    const auto quantizer = make_quantizer("cachegen", of).value();
    EXPECT_EQ(quantizer->needs_tables(), of == nullptr);
    for (const std::uint32_t tokens : {1u, 10u, 31u, 32u, 75u}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::byte> codes(quantizer->base_bytes(tokens, kDim));
        for (std::byte& code : codes) code = static_cast<std::byte>(random() >> random() % 8);
        // Only a token by itself has a scale, and negative zero is none.
        for (std::uint32_t first = 0; first < tokens; first += kBlockTokens) {
          const std::uint32_t count = std::min(kBlockTokens, tokens - first);
          std::byte* block = codes.data() + first / kBlockTokens * cachegen_block_bytes(kBlockTokens, kDim);
          for (const bool values : {false, true}) {
            const auto side = cachegen_side(block, count, kDim, values);
            for (std::uint32_t t = 0; t < count; ++t) {
              if (random() % 3 == 0 || !side.by_itself(t)) std::memset(side.scales + 2 * t, 0, 2);
            }
          }
        }
        const Quantizer& head = quantizer->of_head(of ? static_cast<std::uint32_t>(random() % 6) : 0);
        const std::vector<std::byte> bytes = packed(head, codes, tokens);
        EXPECT_LE(bytes.size(), head.packed_bytes_max(tokens, kDim));
        std::vector<std::byte> back(codes.size());
        ASSERT_TRUE(head.unpack(bytes, tokens, kDim, back)) << tokens;
        ASSERT_EQ(back, codes) << tokens;
      }
    }
  }
}

TEST(Cachegen, RefusesOrUnpacksAnyBytes) {
  const auto quantizer = make_quantizer("cachegen").value();
  const std::vector<std::byte> sound = packed(*quantizer, codes_of(*quantizer, drifting_head(3)), kTokens);
  std::vector<std::byte> codes(quantizer->base_bytes(kTokens, kDim));
  for (std::size_t size = 0; size < sound.size(); ++size) {
    ASSERT_FALSE(quantizer->unpack(std::span(sound).first(size), kTokens, kDim, codes)) << size;
  }
  std::mt19937_64 random(2);
  std::size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> damaged = sound;
    damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    refused += !quantizer->unpack(damaged, kTokens, kDim, codes);
  }
  EXPECT_GT(refused, 1500u) << "codes of tokens by themselves may be anything; the rest ends in another state";
}

// The twin: frequencies of the codes counted anew, and the entropy that they have.
TEST(Cachegen, TakesAboutTheEntropyOfWhatItWasCalibratedWith) {
  const CachegenTables tables = calibrated(10);
  const auto quantizer = make_quantizer("cachegen", &tables).value();
  double bits = 0, entropy = 0, generic_bits = 0, all = 0;
  for (std::uint32_t index = 0; index < kLayers * kHeads; ++index) {
    const Quantizer& head = quantizer->of_head(index);
    const std::vector<std::byte> codes = codes_of(head, drifting_head(10 + index));
    bits += 8.0 * static_cast<double>(packed(head, codes, kTokens).size());
    generic_bits += 8.0 * static_cast<double>(packed(*make_quantizer("cachegen").value(), codes, kTokens).size());
    all += 2.0 * kTokens * kDim;
    std::vector<std::map<int, int>> counts(2 * kDim);
    for (std::uint32_t first = 0; first < kTokens; first += kBlockTokens) {
      const std::uint32_t count = std::min(kBlockTokens, kTokens - first);
      const std::byte* block = codes.data() + first / kBlockTokens * cachegen_block_bytes(kBlockTokens, kDim);
      for (const bool values : {false, true}) {
        const auto side = cachegen_side(block, count, kDim, values);
        for (std::uint32_t t = 0; t < count; ++t) {
          entropy += 1 + (side.by_itself(t) ? 16 + 8 * kDim : 0);
          for (std::uint32_t c = 0; c < kDim && !side.by_itself(t); ++c) {
            ++counts[values * kDim + c][static_cast<std::int8_t>(side.code(t, c))];
          }
        }
      }
    }
    for (const auto& channel : counts) {
      double total = 0;
      for (const auto& [code, count] : channel) total += count;
      for (const auto& [code, count] : channel) entropy -= count * std::log2(count / total);
    }
  }
  EXPECT_GT(bits, entropy * 0.999);
  EXPECT_LT(bits, entropy * 1.08);
  EXPECT_LT(bits, generic_bits);
  EXPECT_NEAR(bits / all, tables.bits(), 0.15 * tables.bits());
}

TEST(Cachegen, HasFinerBinsInEarlierLayers) {
  const CachegenTables tables = calibrated(20);
  const auto quantizer = make_quantizer("cachegen", &tables).value();
  std::vector<double> errors;
  const HeadRows rows = drifting_head(99);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const Quantizer& head = quantizer->of_head(layer * kHeads);
    HeadMemory memory(kTokens, kDim, kTokens);
    head.decode({codes_of(head, rows)}, memory.rows());
    const HeadRows back = memory.unpacked();
    double error = 0;
    for (std::size_t i = 0; i < rows.values.size(); ++i) error += std::pow(back.values[i] - rows.values[i], 2);
    errors.push_back(error);
  }
  EXPECT_LT(errors[0], errors[1]);
  EXPECT_LT(errors[1], errors[2]);
}

TEST(CachegenTables, ComeBackFromTheirBytes) {
  const CachegenTables tables = calibrated(30);
  const auto back = CachegenTables::parse(tables.serialize(kModel), kModel);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->hash(), tables.hash());
  EXPECT_EQ(back->bits(), tables.bits());
  EXPECT_TRUE(back->check_shape(kLayers, kHeads, kDim));
  EXPECT_EQ(back->check_shape(kLayers, kHeads, 64).error().code, ErrorCode::kMismatch);
  EXPECT_NE(calibrated(31).hash(), tables.hash());
}

TEST(CachegenTables, DamagedOrForeignOnesAreRefused) {
  std::vector<std::byte> bytes = calibrated(5).serialize(kModel);
  ASSERT_TRUE(CachegenTables::parse(bytes, kModel));
  EXPECT_EQ(CachegenTables::parse(bytes, {7, 8}).error().code, ErrorCode::kMismatch);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_FALSE(CachegenTables::parse(bytes, kModel)) << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(CachegenTables::parse(std::span(bytes).first(size), kModel)) << size;
  }
  // Forged: a frequency of zero, under a checksum that is right.
  const std::size_t at = 56 + 4;
  bytes[at] = bytes[at + 1] = std::byte{0};
  const Hash128 checksum = hash128(std::span<const std::byte>(bytes).subspan(24));
  std::memcpy(&bytes[8], &checksum.high, 8);
  std::memcpy(&bytes[16], &checksum.low, 8);
  EXPECT_EQ(CachegenTables::parse(bytes, kModel).error().code, ErrorCode::kCorrupt);
}

TEST(CachegenTables, OfAnotherCalibrationDoNotDecode) {
  const ExtentEncoder::Encoded extent = small_extent("cachegen");
  CachegenCalibrator calibrator(kSmallGeometry.layers, kSmallGeometry.kv_heads, kSmallGeometry.head_dim);
  calibrator.set_widths();
  const CachegenTables tables = calibrator.finish();
  const OwnedView sink = make_view(kSmallGeometry, Layout::kPoolBlocks, kSmallExtentTokens, 1);
  InlineExecutor alone;
  auto decoder = ExtentDecoder::start(extent.manifest, {.tokens = kSmallExtentTokens}, sink.view, &tables).value();
  const Status status = decode_ranges(decoder, extent.parts, alone);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace shale
