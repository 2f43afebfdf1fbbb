// The lines of a file, gzip or not, and where an error in one of them is. Private to the room.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

class LineSource {
 public:
  // Readable bytes that follow every line, of any value.
  static constexpr std::size_t kPadding = 64;

  // "-" is standard input. kNotFound, kIo.
  static Result<LineSource> open(const std::filesystem::path& path, std::uint64_t line_bytes_max);

  // Steps to the next line that is not blank; false at the file's end. Checks that it is UTF-8.
  Result<bool> next();
  // Makes the next `next` return the current line once more.
  void unread() { again_ = true; }

  // The line without "\n" or "\r\n"; valid until `next`.
  std::string_view line() const { return {buffer_.data() + line_, line_size_}; }
  std::uint64_t number() const { return number_; }
  const std::string& file() const { return file_; }

  // "FILE:LINE:COLUMN: message", kInvalidArgument. `at` points into the line.
  template <class... Args>
  std::unexpected<Error> fail_at(const char* at, fmt::format_string<Args...> format, Args&&... args) const {
    return fail_at(number_, column(at), fmt::format(format, std::forward<Args>(args)...));
  }
  std::unexpected<Error> fail_at(std::uint64_t line, std::size_t column, std::string_view message) const;
  std::size_t column(const char* at) const { return static_cast<std::size_t>(at - line().data()) + 1; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  LineSource(gzFile stream, std::string file, std::uint64_t line_bytes_max);
  Result<bool> read_line();
  Status refill();

  std::unique_ptr<gzFile_s, Close> stream_;
  std::string file_;
  std::uint64_t line_bytes_max_;
  std::vector<char> buffer_;  // [line_, line_ + line_size_) is the line, [next_, filled_) is what follows it
  std::size_t line_ = 0, line_size_ = 0, next_ = 0, filled_ = 0;
  std::uint64_t number_ = 0;
  bool ended_ = false, again_ = false;
};

}  // namespace shale
