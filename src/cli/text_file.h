// Text that the user names: a file, or standard input.
#pragma once

#include <filesystem>
#include <string>

#include "core/error.h"

namespace shale {

// The whole file; "-" is standard input. kNotFound or kIo when it cannot be read, kInvalidArgument when it is empty, a
// folder, or not UTF-8 (with the offset of the first byte that is not).
Result<std::string> read_text(const std::string& path);

// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629); npos when all do.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace shale
