#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace shale {
namespace {

#ifdef __FLT16_MAX__
Half by_compiler(float value) { return std::bit_cast<Half>(static_cast<_Float16>(value)); }
float by_compiler(Half value) { return static_cast<float>(std::bit_cast<_Float16>(value)); }

TEST(Half, EveryHalfBecomesTheFloatThatTheCompilerMakes) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float ours = to_float(half), theirs = by_compiler(half);
    if (std::isnan(theirs)) {
      EXPECT_TRUE(std::isnan(ours)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(theirs)) << bits;
    }
  }
}

// Every exponent and sign, and of the mantissas those around each rounding boundary.
TEST(Half, FloatsRoundAsTheCompilerRounds) {
  for (std::uint32_t high = 0; high < 0x80000; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu}) {
      const float value = std::bit_cast<float>(high << 13 | low);
      if (std::isnan(value)) continue;
      ASSERT_EQ(to_half(value).bits, by_compiler(value).bits) << std::hexfloat << value;
    }
  }
}
#endif

TEST(Half, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_half(1.0f).bits, 0x3c00);
  EXPECT_EQ(to_half(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(to_half(1.0f + 0x1.8p-10f).bits, 0x3c02);
  EXPECT_EQ(to_half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(to_half(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(to_float(to_half(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

TEST(Half, SpansConvertLikeSingleValues) {
  const std::vector<float> values = {0, -1.5f, 3.14159f, 1e-7f, 7e4f};
  std::vector<Half> halves(values.size());
  std::vector<float> back(values.size());
  to_half(values, halves);
  to_float(halves, back);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i], to_half(values[i]));
    EXPECT_EQ(back[i], to_float(halves[i]));
  }
}

}  // namespace
}  // namespace shale
