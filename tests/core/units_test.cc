#include "core/units.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Units, ParsesBytes) {
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes("256KiB").value(), 262144u);
  EXPECT_EQ(parse_bytes("1.5 GiB").value(), 1610612736u);
  EXPECT_EQ(parse_bytes("300MB").value(), 300000000u);
  EXPECT_EQ(parse_bytes("2tib").value(), 2199023255552u);
  EXPECT_EQ(parse_bytes("0.5KB").value(), 500u);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GiB", "-1", "-0", "1e3", "nan", "inf", "1 ", "1  GiB", "2G", "2 GiB x", "0x10",
                           "300MB/s", "1,5GiB"}) {
    const auto size = parse_bytes(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(size.error().message.find("1.5GiB"), std::string::npos) << size.error().message;
  }
  EXPECT_FALSE(parse_bytes("9000000000GiB"));
}

TEST(Units, ParsesRatesAndDurations) {
  EXPECT_DOUBLE_EQ(parse_rate("300MB/s").value(), 3e8);
  EXPECT_DOUBLE_EQ(parse_rate("1GiB/s").value(), 1073741824.0);
  EXPECT_DOUBLE_EQ(parse_rate("100").value(), 100.0);
  EXPECT_FALSE(parse_rate("300MB"));
  EXPECT_DOUBLE_EQ(parse_duration("1.5s").value(), 1.5);
  EXPECT_DOUBLE_EQ(parse_duration("200 ms").value(), 0.2);
  EXPECT_DOUBLE_EQ(parse_duration("50us").value(), 50e-6);
  EXPECT_DOUBLE_EQ(parse_duration("10min").value(), 600.0);
  EXPECT_DOUBLE_EQ(parse_duration("2h").value(), 7200.0);
  EXPECT_FALSE(parse_duration("5 parsecs"));
}

TEST(Units, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(98ull << 20), "98 MiB");
  EXPECT_EQ(format_bytes((1ull << 30) - 1), "1 GiB");
  EXPECT_EQ(format_bytes(~0ull), "16384 PiB");
}

TEST(Units, FormatsRatesAndDurations) {
  EXPECT_EQ(format_rate(3e8), "300 MB/s");
  EXPECT_EQ(format_rate(1.234e9), "1.23 GB/s");
  EXPECT_EQ(format_duration(0), "0 us");
  EXPECT_EQ(format_duration(50e-6), "50 us");
  EXPECT_EQ(format_duration(0.01234), "12.3 ms");
  EXPECT_EQ(format_duration(0.9996), "1 s");
  EXPECT_EQ(format_duration(1.534), "1.53 s");
  EXPECT_EQ(format_duration(59.97), "1 min 00 s");
  EXPECT_EQ(format_duration(125), "2 min 05 s");
  EXPECT_EQ(format_duration(7260), "2 h 01 min");
  EXPECT_EQ(format_duration(-1.5), "-1.5 s");
}

TEST(Units, WhatIsFormattedParsesBack) {
  for (const std::uint64_t bytes : {1ull, 512ull, 1024ull, 3ull << 20, 5ull << 30, 7ull << 40}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)).value(), bytes);
  }
}

}  // namespace
}  // namespace shale
