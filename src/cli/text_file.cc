#include "cli/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace shale {
namespace {

Result<std::string> read_all(std::FILE* file, const std::string& path) {
  std::string text;
  char buffer[1 << 16];
  for (std::size_t read; (read = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, read);
  if (std::ferror(file)) return fail(ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return text;
}

Result<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a folder; name a text file", path);
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", path,
                std::strerror(errno));
  }
  return read_all(file.get(), path);
}

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

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

Result<std::string> read_text(const std::string& path) {
  const std::string name = path == "-" ? "standard input" : path;
  SHALE_ASSIGN(std::string text, path == "-" ? read_all(stdin, name) : read_file(path));
  if (text.empty()) return fail(ErrorCode::kInvalidArgument, "{} is empty", name);
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "{} is not UTF-8 text: byte {} is out of place; convert it with iconv",
                name, at);
  }
  return text;
}

}  // namespace shale
