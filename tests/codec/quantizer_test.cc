// What holds for every registered quantizer, under every instruction set.
#include "quantizers/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "codec/naive_quantizer.h"
#include "support/simd_targets.h"

namespace shale {
namespace {

class EveryQuantizer : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Quantizer> quantizer_ = std::move(*make_quantizer(GetParam()));

  std::size_t bytes_of(std::uint32_t tokens, std::uint32_t head_dim) const {
    return quantizer_->base_bytes(tokens, head_dim) + quantizer_->refinement_bytes(tokens, head_dim);
  }
  // The base, then the refinement.
  template <class Byte>
  Codes<Byte> codes_of(std::span<Byte> bytes, std::uint32_t tokens, std::uint32_t head_dim) const {
    const std::size_t base = quantizer_->base_bytes(tokens, head_dim);
    return {bytes.first(base), bytes.subspan(base)};
  }
  std::vector<std::byte> encode(const HeadRows& rows, std::uint32_t stride) const {
    std::vector<std::byte> bytes(bytes_of(rows.tokens, rows.head_dim));
    quantizer_->encode(HeadMemory(rows, stride).const_rows(), codes_of(std::span(bytes), rows.tokens, rows.head_dim));
    return bytes;
  }
  HeadRows decode(std::span<const std::byte> bytes, std::uint32_t tokens, std::uint32_t head_dim,
                  std::uint32_t stride) const {
    HeadMemory memory(tokens, head_dim, stride);
    quantizer_->decode(codes_of(bytes, tokens, head_dim), memory.rows());
    return memory.unpacked();
  }
};

TEST_P(EveryQuantizer, KnowsItsName) { EXPECT_EQ(quantizer_->name(), GetParam()); }

TEST_P(EveryQuantizer, StaysWithinItsErrorBound) {
  for_each_simd_target([&] {
    for (const std::uint32_t head_dim : {32u, 64u, 128u, 256u}) {
      for (const std::uint32_t tokens : {1u, 7u, 16u, 31u, 32u, 33u, 64u, 95u}) {
        const HeadRows rows = random_head(tokens, head_dim, tokens);
        const HeadRows bounds = quantizer_bounds(GetParam(), rows);
        const HeadRows decoded = decode(encode(rows, tokens + 3), tokens, head_dim, tokens + 5);
        for (std::size_t i = 0; i < rows.keys.size(); ++i) {
          ASSERT_LE(std::abs(decoded.keys[i] - rows.keys[i]), bounds.keys[i])
              << "key " << i << " of " << tokens << " x " << head_dim;
          ASSERT_LE(std::abs(decoded.values[i] - rows.values[i]), bounds.values[i])
              << "value " << i << " of " << tokens << " x " << head_dim;
        }
      }
    }
  });
}

TEST_P(EveryQuantizer, EncodesTheSameUnderEveryInstructionSet) {
  const HeadRows rows = random_head(50, 64, 1);
  const std::vector<std::byte> expected = encode(rows, 64);
  const HeadRows decoded = decode(expected, 50, 64, 64);
  for_each_simd_target([&] {
    std::size_t different = 0;
    const std::vector<std::byte> bytes = encode(rows, 64);
    for (std::size_t i = 0; i < bytes.size(); ++i) different += bytes[i] != expected[i];
    EXPECT_LE(different, bytes.size() / 500) << "more than roundings of exact halves";
    const HeadRows again = decode(expected, 50, 64, 64);
    for (std::size_t i = 0; i < decoded.keys.size(); ++i) {
      ASSERT_NEAR(again.keys[i], decoded.keys[i], std::abs(decoded.keys[i]) * 0x1p-10) << i;
    }
  });
}

TEST_P(EveryQuantizer, KeepsConstantsAndExtremes) {
  if (GetParam().starts_with("turboquant")) GTEST_SKIP() << "rotates constants away";
  for (const float value : {0.0f, -0.0f, 1.0f, -3.5f, 65504.0f, -65504.0f, 0x1p-24f, 0x1p-14f}) {
    HeadRows rows(40, 32);
    std::fill(rows.keys.begin(), rows.keys.end(), value);
    std::fill(rows.values.begin(), rows.values.end(), value);
    const HeadRows decoded = decode(encode(rows, 40), 40, 32, 40);
    for (std::size_t i = 0; i < rows.keys.size(); ++i) {
      ASSERT_NEAR(decoded.keys[i], value, std::abs(value) / 1000 + 0x1p-24f);
      ASSERT_NEAR(decoded.values[i], value, std::abs(value) / 1000 + 0x1p-24f);
    }
  }
}

TEST_P(EveryQuantizer, SpansTheWholeRange) {
  HeadRows rows(32, 32);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) rows.keys[i] = rows.values[i] = i % 2 == 0 ? 65504.0f : -65504.0f;
  const HeadRows decoded = decode(encode(rows, 32), 32, 32, 32);
  const HeadRows bounds = quantizer_bounds(GetParam(), rows);
  for (std::size_t i = 0; i < rows.keys.size(); ++i) {
    ASSERT_NEAR(decoded.values[i], rows.values[i], bounds.values[i]) << i;
    ASSERT_TRUE(std::isfinite(decoded.keys[i])) << i;
  }
}

TEST_P(EveryQuantizer, BlocksAreIndependent) {
  const HeadRows rows = random_head(80, 64, 2);
  HeadRows second(48, 64);
  std::copy(rows.keys.begin() + 32 * 64, rows.keys.end(), second.keys.begin());
  std::copy(rows.values.begin() + 32 * 64, rows.values.end(), second.values.begin());
  const std::vector<std::byte> whole = encode(rows, 80), tail = encode(second, 48);
  const auto whole_codes = codes_of(std::span(whole), 80, 64), tail_codes = codes_of(std::span(tail), 48, 64);
  EXPECT_TRUE(std::ranges::equal(tail_codes.base, whole_codes.base.last(tail_codes.base.size())));
  EXPECT_TRUE(std::ranges::equal(tail_codes.refinement, whole_codes.refinement.last(tail_codes.refinement.size())));
  EXPECT_EQ(whole.size(), tail.size() + bytes_of(32, 64));
}

TEST_P(EveryQuantizer, TouchesNothingOutsideItsTokens) {
  const HeadRows rows = random_head(21, 32, 3);
  const std::vector<std::byte> bytes = encode(rows, 21);
  HeadMemory memory(21, 32, 40);
  std::fill(memory.keys().begin(), memory.keys().end(), Half{0x1234});
  quantizer_->decode(codes_of(std::span(bytes), 21, 32), memory.rows());
  for (std::size_t c = 0; c < 32; ++c) {
    for (std::size_t i = 21; i < 40; ++i) ASSERT_EQ(memory.keys()[c * 40 + i].bits, 0x1234);
  }
}

TEST_P(EveryQuantizer, SurvivesNonFiniteInputAndSparesOtherGroups) {
  for_each_simd_target([&] {
    for (const float poison : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      HeadRows rows = random_head(64, 64, 4);
      const HeadRows clean = decode(encode(rows, 64), 64, 64, 64);
      rows.key(3, 5) = poison;
      rows.value(40, 6) = -poison;
      const HeadRows decoded = decode(encode(rows, 64), 64, 64, 64);
      for (std::uint32_t i = 0; i < 64; ++i) {
        for (std::uint32_t c = 0; c < 64; ++c) {
          const bool key_spared = i >= 32 || (i != 3 && c != 5), value_spared = i != 40;
          ASSERT_TRUE(!key_spared || decoded.key(i, c) == clean.key(i, c)) << i << " " << c;
          ASSERT_TRUE(!value_spared || decoded.value(i, c) == clean.value(i, c)) << i << " " << c;
        }
      }
    }
  });
}

TEST_P(EveryQuantizer, DecodesAnyBytes) {
  std::mt19937_64 random(5);
  for_each_simd_target([&] {
    for (const std::uint32_t tokens : {5u, 32u, 70u}) {
      std::vector<std::byte> bytes(bytes_of(tokens, 64));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      EXPECT_EQ(decode(bytes, tokens, 64, tokens).keys.size(), std::size_t{tokens} * 64);
    }
  });
}

TEST_P(EveryQuantizer, IsThreadSafe) {
  const HeadRows rows = random_head(70, 64, 6);
  const std::vector<std::byte> expected = encode(rows, 70);
  std::vector<std::vector<std::byte>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = encode(rows, 70); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

INSTANTIATE_TEST_SUITE_P(Quantizers, EveryQuantizer, ::testing::ValuesIn(quantizer_names()),
                         [](const auto& quantizer) { return std::string(quantizer.param); });

TEST(Quantizers, NoneIsExact) {
  const auto none = std::move(*make_quantizer("none"));
  const HeadRows rows = random_head(45, 96, 7);
  std::vector<std::byte> bytes(none->base_bytes(45, 96));
  EXPECT_EQ(bytes.size(), 45u * 96 * 4);
  none->encode(HeadMemory(rows, 48).const_rows(), {bytes});
  HeadMemory decoded(45, 96, 45);
  none->decode({bytes}, decoded.rows());
  EXPECT_EQ(decoded.unpacked().keys, rows.keys);
  EXPECT_EQ(decoded.unpacked().values, rows.values);
}

// Values are Gaussian; keys have outlying channels, which the rotation spreads. The expected error is Lloyd's and
// Max's.
TEST(Quantizers, TurboquantErrsAsOnGaussiansWhateverTheChannels) {
  const HeadRows rows = random_head(512, 128, 9);
  for (const auto& [name, expected] :
       {std::pair{"turboquant2", 0.1175}, {"turboquant3", 0.03455}, {"turboquant4", 0.0095}}) {
    const auto quantizer = std::move(*make_quantizer(name));
    std::vector<std::byte> bytes(quantizer->base_bytes(512, 128));
    quantizer->encode(HeadMemory(rows, 512).const_rows(), {bytes});
    HeadMemory memory(512, 128, 512);
    quantizer->decode({bytes}, memory.rows());
    const HeadRows decoded = memory.unpacked();
    const auto error = [](const std::vector<float>& from, const std::vector<float>& to) {
      double errors = 0, squares = 0;
      for (std::size_t i = 0; i < from.size(); ++i) {
        errors += (to[i] - from[i]) * (to[i] - from[i]);
        squares += from[i] * from[i];
      }
      return errors / squares;
    };
    EXPECT_NEAR(error(rows.values, decoded.values), expected, 0.05 * expected) << name;
    EXPECT_NEAR(error(rows.keys, decoded.keys), expected, 0.3 * expected) << name;
  }
}

TEST(Quantizers, SizesAreThoseOfTheFormat) {
  const auto bytes = [](std::string_view name, std::uint32_t tokens) {
    return (*make_quantizer(name))->base_bytes(tokens, 64);
  };
  EXPECT_EQ(bytes("int8", 32), 32u * (2 + 2 + 64 + 64));
  EXPECT_EQ(bytes("int8", 5), 5u * (2 + 2 + 64 + 64));
  EXPECT_EQ(bytes("kivi4", 32), 64u * 4 + 64 * 4 + 64 * 16 + 32 * 32);
  EXPECT_EQ(bytes("kivi4", 5), 64u * 4 + 10 * 4 + 64 * 3 + 5 * 32);
  EXPECT_EQ(bytes("kivi2", 33), 64u * 4 + 64 * 4 + 64 * 8 + 32 * 16 + 64 * 4 + 2 * 4 + 64 * 1 + 16);
  EXPECT_EQ(bytes("layered", 33), bytes("kivi2", 33));
  EXPECT_EQ(bytes("layered2", 33), bytes("kivi2", 33));
  EXPECT_EQ((*make_quantizer("layered"))->refinement_bytes(33, 64), 64u * 8 + 32 * 16 + 64 + 16);
  EXPECT_EQ(bytes("turboquant2", 33), 33u * 4 + 64 * 8 + 33 * 16 + 64);
  EXPECT_EQ(bytes("turboquant3", 33), 33u * 4 + 64 * 8 + 33 * 16 + 64 + 64 * 4 + 33 * 8 + 64);
  EXPECT_EQ(bytes("turboquant4", 33), 33u * 4 + 64 * 16 + 33 * 32 + 64);
}

TEST(Quantizers, AnUnknownNameListsTheKnownOnes) {
  const auto made = make_quantizer("nope");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message,
              ::testing::HasSubstr("cachegen, int8, kivi2, kivi4, layered, layered2, none, turboquant2"));
}

}  // namespace
}  // namespace shale
