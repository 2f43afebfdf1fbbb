// Sizes, rates and durations as people write them. A number without a unit is taken as bytes, bytes per second or
// seconds. KB, MB, GB, TB are powers of 1,000; KiB, MiB, GiB, TiB powers of 1,024; letter case does not matter and one
// space may stand before the unit. Whatever else is written is kInvalidArgument with the accepted forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

// A number and nothing else: "0.5", "1e-3", "inf".
std::optional<double> parse_number(std::string_view text);

// "4096", "256KiB", "1.5 GiB". Rounded to the nearest byte.
Result<std::uint64_t> parse_bytes(std::string_view text);

// "300MB/s", "1GiB/s"; bytes per second.
Result<double> parse_rate(std::string_view text);

// "1.5s", "200ms", "50us", "10min", "2h"; seconds.
Result<double> parse_duration(std::string_view text);

// The largest binary unit that leaves at least 1, with two significant decimals at most: "512 B", "1.5 GiB".
std::string format_bytes(std::uint64_t bytes);

// Decimal units, as drives and networks are sold: "300 MB/s".
std::string format_rate(double bytes_per_s);

// "12.3 ms", "1.53 s", "2 min 05 s". Negative durations keep their sign.
std::string format_duration(double seconds);

}  // namespace shale
