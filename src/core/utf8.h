// UTF-8 as RFC 3629 has it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shale {

// Offset of the first byte that does not belong to well-formed UTF-8; npos when all do.
std::size_t find_invalid_utf8(std::string_view text);

// The first of `text`, and its last: at most so many bytes, and no part of a character.
std::string_view utf8_front(std::string_view text, std::size_t bytes);
std::string_view utf8_back(std::string_view text, std::size_t bytes);

// One line of it for a log or a terminal, of so many bytes at most: '?' in place of control characters and of bytes
// that are no UTF-8.
std::string printable(std::string_view text, std::size_t bytes_max);

}  // namespace shale
