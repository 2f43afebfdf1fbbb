#include "core/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

namespace shale {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {
    Unit{"", 1},      Unit{"b", 1},        Unit{"kb", 1e3},     Unit{"mb", 1e6},     Unit{"gb", 1e9},
    Unit{"tb", 1e12}, Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20}, Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40},
};
constexpr std::array kRateUnits = {
    Unit{"", 1},        Unit{"b/s", 1},        Unit{"kb/s", 1e3},     Unit{"mb/s", 1e6},     Unit{"gb/s", 1e9},
    Unit{"tb/s", 1e12}, Unit{"kib/s", 0x1p10}, Unit{"mib/s", 0x1p20}, Unit{"gib/s", 0x1p30}, Unit{"tib/s", 0x1p40},
};
constexpr std::array kDurationUnits = {
    Unit{"", 1}, Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}, Unit{"min", 60}, Unit{"h", 3600},
};

// A non-negative, finite number followed by one of `units`; `example` shows the reader what is accepted.
Result<double> parse(std::string_view text, std::span<const Unit> units, std::string_view what,
                     std::string_view example) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error == std::errc() && std::isfinite(number) && !std::signbit(number)) {
    std::string unit(end, text.data() + text.size());
    if (unit.size() > 1 && unit.front() == ' ') unit.erase(0, 1);
    std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto found = std::ranges::find(units, unit, &Unit::name);
    if (found != units.end()) return number * found->factor;
  }
  return fail(ErrorCode::kInvalidArgument, "'{}' is not a {}: write for example {}", text, what, example);
}

// "1.5", "12", "300": three significant digits, no trailing zeros.
std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string scaled(double value, double base, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && value >= base - 0.5) {
    value /= base;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return number;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const Result<double> bytes = parse(text, kByteUnits, "size", "4096, 256KiB, 1.5GiB or 300MB");
  if (!bytes) return std::unexpected(bytes.error());
  if (*bytes >= 0x1p63) return fail(ErrorCode::kInvalidArgument, "'{}' is more than 8 EiB", text);
  return static_cast<std::uint64_t>(std::llround(*bytes));
}

Result<double> parse_rate(std::string_view text) { return parse(text, kRateUnits, "rate", "300MB/s or 1.5GiB/s"); }

Result<double> parse_duration(std::string_view text) {
  return parse(text, kDurationUnits, "duration", "1.5s, 200ms, 50us, 10min or 2h");
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string format_rate(double bytes_per_s) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return scaled(bytes_per_s, 1000, kUnits);
}

std::string format_duration(double seconds) {
  if (seconds < 0) return fmt::format("-{}", format_duration(-seconds));
  if (seconds < 0.9995e-3) return fmt::format("{} us", three_digits(seconds * 1e6));
  if (seconds < 0.9995) return fmt::format("{} ms", three_digits(seconds * 1e3));
  if (seconds < 59.95) return fmt::format("{} s", three_digits(seconds));
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace shale
