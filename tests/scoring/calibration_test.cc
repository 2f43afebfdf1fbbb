#include "scoring/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "scoring/paged_layer.h"

namespace shale {
namespace {

constexpr Hash128 kModel{3, 4};

// Two layers of two heads, dimension 8, of which 6 channels are rotated.
Calibration small_calibration(Rope::Pairing pairing) {
  Calibrator calibrator(2, 2, Rope{.dimensions = 6, .pairing = pairing});
  const std::vector<float> queries = {1, 2, 3, 4, 5, 6, 7, 8, 3, 2, 1, 0, 5, 2, 9, 9};
  calibrator.add(1, 0, queries, 8);
  std::vector<float> poisoned(8, 1.0f);
  poisoned[7] = std::nanf("");
  calibrator.add(1, 0, poisoned, 8);
  return calibrator.finish();
}

TEST(Calibration, AveragesQueriesAsComplexPairs) {
  const Calibration halves = small_calibration(Rope::Pairing::kHalves);
  EXPECT_TRUE(halves.check_shape(2, 2, 3));
  EXPECT_EQ(halves.check_shape(2, 2, 4).error().code, ErrorCode::kMismatch);
  const auto pairs = halves.head(1, 0);
  EXPECT_FLOAT_EQ(pairs[0].real, 2);       // (1 + 3) / 2
  EXPECT_FLOAT_EQ(pairs[0].imaginary, 2);  // (4 + 0) / 2
  EXPECT_FLOAT_EQ(pairs[0].magnitude, (std::sqrt(17.0f) + 3) / 2);
  EXPECT_FLOAT_EQ(pairs[2].real, 2);
  EXPECT_FLOAT_EQ(pairs[2].imaginary, 4);
  const auto neighbours = small_calibration(Rope::Pairing::kNeighbours).head(1, 0)[1];
  EXPECT_FLOAT_EQ(neighbours.real, 2);       // (3 + 1) / 2
  EXPECT_FLOAT_EQ(neighbours.imaginary, 2);  // (4 + 0) / 2
  EXPECT_EQ(halves.head(0, 1)[0].magnitude, 0);
}

TEST(Calibration, ReadsWhatItWrote) {
  const Calibration written = small_calibration(Rope::Pairing::kHalves);
  const auto read = Calibration::parse(written.serialize(kModel), kModel);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(read->check_shape(2, 2, 3));
  EXPECT_EQ(std::memcmp(read->head(0, 0).data(), written.head(0, 0).data(), 12 * sizeof(Calibration::Pair)), 0);
}

TEST(Calibration, RefusesAnotherModelsAndAnotherVersion) {
  std::vector<std::byte> bytes = small_calibration(Rope::Pairing::kHalves).serialize(kModel);
  EXPECT_EQ(Calibration::parse(bytes, {3, 5}).error().code, ErrorCode::kMismatch);
  bytes[6] = std::byte{'2'};
  EXPECT_EQ(Calibration::parse(bytes, kModel).error().code, ErrorCode::kMismatch);
}

TEST(Calibration, RefusesEveryDamagedByteAndEveryLength) {
  const std::vector<std::byte> bytes = small_calibration(Rope::Pairing::kHalves).serialize(kModel);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    EXPECT_FALSE(Calibration::parse(damaged, kModel)) << "byte " << i;
    EXPECT_FALSE(Calibration::parse(std::span(bytes).first(i), kModel)) << i << " bytes";
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_EQ(Calibration::parse(longer, kModel).error().code, ErrorCode::kCorrupt);
}

TEST(Calibration, RefusesSoundChecksumsOverNonsense) {
  std::vector<std::byte> bytes = small_calibration(Rope::Pairing::kHalves).serialize(kModel);
  const auto with_checksum = [](std::vector<std::byte> forged) {
    const Hash128 sum = hash128(std::span(forged).subspan(24));
    std::memcpy(&forged[8], &sum.high, 8);
    std::memcpy(&forged[16], &sum.low, 8);
    return forged;
  };
  std::vector<std::byte> huge = bytes;
  std::fill_n(&huge[40], 12, std::byte{0xff});
  EXPECT_EQ(Calibration::parse(with_checksum(huge), kModel).error().code, ErrorCode::kCorrupt);
  std::vector<std::byte> infinite = bytes;
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&infinite[56], &infinity, sizeof(infinity));
  EXPECT_EQ(Calibration::parse(with_checksum(infinite), kModel).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace shale
