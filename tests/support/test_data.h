// Where checked-in test data lies.
#pragma once

#include <filesystem>

namespace shale {

inline std::filesystem::path test_data() {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "data";
}

}  // namespace shale
