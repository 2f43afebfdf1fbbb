#include "core/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace shale {
namespace {

// Bytes of the sequence that starts `text`, 0 when it is not well-formed.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool beyond = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || beyond ? 0 : length;
}

bool is_ascii(const char* eight) {
  std::uint64_t bytes;
  std::memcpy(&bytes, eight, sizeof bytes);
  return (bytes & 0x8080808080808080) == 0;
}

bool inside_character(std::string_view text, std::size_t at) {
  return at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

}  // namespace

std::string_view utf8_front(std::string_view text, std::size_t bytes) {
  std::size_t end = std::min(text.size(), bytes);
  while (inside_character(text, end)) --end;
  return text.substr(0, end);
}

std::string_view utf8_back(std::string_view text, std::size_t bytes) {
  std::size_t begin = text.size() - std::min(text.size(), bytes);
  while (inside_character(text, begin)) ++begin;
  return text.substr(begin);
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string line(utf8_front(text, bytes_max));
  for (std::size_t at = 0, length = 0; at < line.size(); at += length) {
    const std::size_t well_formed = sequence_length(std::string_view(line).substr(at));
    length = std::max<std::size_t>(well_formed, 1);
    const auto first = static_cast<unsigned char>(line[at]);
    const bool second_set = first == 0xc2 && static_cast<unsigned char>(line[at + 1]) < 0xa0;  // U+0080 to U+009F
    if (well_formed == 0 || first < ' ' || first == 0x7f || second_set) line.replace(at, length, length, '?');
  }
  return line;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (text.size() - at >= 8 && is_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace shale
