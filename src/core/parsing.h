// Pieces of what parsers of text do.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace shale {

// The whole text as a number of `base`; nothing where it is empty, holds anything but digits (and, of a signed number,
// a minus before them), or a number that Integer does not hold.
template <class Integer>
std::optional<Integer> parse_integer(std::string_view text, int base = 10) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The text without `spaces` at either end.
constexpr std::string_view trimmed(std::string_view text, std::string_view spaces = " \t\r\n") {
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

}  // namespace shale
