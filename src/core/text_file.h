// What the user names to be read, a file or for text standard input, and to be written.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

// The whole file, whatever its bytes. kNotFound or kIo when it cannot be read, kInvalidArgument for a folder.
Result<std::string> read_file(const std::string& path);

// The whole file; "-" is standard input. kNotFound or kIo when it cannot be read, kInvalidArgument when it is empty, a
// folder, or not UTF-8 (with the offset of the first byte that is not).
Result<std::string> read_text(const std::string& path);

// Replaces the file. kIo when it cannot be written.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace shale
