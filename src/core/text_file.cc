#include "core/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "core/utf8.h"

namespace shale {
namespace {

Result<std::string> read_all(std::FILE* file, const std::string& path) {
  std::string text;
  char buffer[1 << 16];
  for (std::size_t read; (read = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, read);
  if (std::ferror(file)) return fail(ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return text;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a folder; name a file", path);
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", path,
                std::strerror(errno));
  }
  return read_all(file.get(), path);
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

Status write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be written", path);
  return {};
}

}  // namespace shale
