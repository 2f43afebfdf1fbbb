// What the user names: a file, or for text standard input.
#pragma once

#include <filesystem>
#include <string>

#include "core/error.h"

namespace shale {

// The whole file, whatever its bytes. kNotFound or kIo when it cannot be read, kInvalidArgument for a folder.
Result<std::string> read_file(const std::string& path);

// The whole file; "-" is standard input. kNotFound or kIo when it cannot be read, kInvalidArgument when it is empty, a
// folder, or not UTF-8 (with the offset of the first byte that is not).
Result<std::string> read_text(const std::string& path);

}  // namespace shale
