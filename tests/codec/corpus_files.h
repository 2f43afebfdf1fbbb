// Files checked in under tests/data/NAME.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/test_data.h"

namespace shale {

class CorpusFiles {
 public:
  explicit CorpusFiles(std::string_view name) : folder_(test_data() / name) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::vector<std::byte> read(const std::filesystem::path& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  // A method's name as the beginning of a file's.
  static std::string file_of(std::string method) {
    for (const char special : {'/', ':'}) std::ranges::replace(method, special, '-');
    return method;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace shale
