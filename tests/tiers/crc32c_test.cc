#include "io/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace shale::testing {
namespace {

std::span<const std::byte> bytes_in(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, IsWhatOthersCompute) {
  EXPECT_EQ(crc32c(0, {}), 0u);
  EXPECT_EQ(crc32c(0, bytes_in("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(0, std::vector<std::byte>(32)), 0x8a9136aau);  // RFC 3720, B.4
}

TEST(Crc32c, GoesOnWhereItWas) {
  const std::string_view text = "The quick brown fox jumps over the lazy dog";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32c(crc32c(0, bytes_in(text.substr(0, cut))), bytes_in(text.substr(cut))), 0x22620404u) << cut;
  }
}

}  // namespace
}  // namespace shale::testing
