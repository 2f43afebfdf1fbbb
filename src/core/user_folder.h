// Where the user's files lie.
#pragma once

#include <filesystem>

namespace shale {

// ${VARIABLE}/shale, or ~/fallback/shale where the variable is unset or empty.
std::filesystem::path user_folder(const char* variable, const char* fallback);

}  // namespace shale
