#include "trace/line_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/utf8.h"

namespace shale {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

// zlib says "<fd:3>: what is wrong".
std::string_view without_name(std::string_view message) {
  const std::size_t name_end = message.find(": ");
  return name_end == std::string_view::npos ? message : message.substr(name_end + 2);
}

}  // namespace

LineSource::LineSource(gzFile stream, std::string file, std::uint64_t line_bytes_max)
    : stream_(stream), file_(std::move(file)), line_bytes_max_(line_bytes_max), buffer_(kReadBytes + kPadding) {}

Result<LineSource> LineSource::open(const std::filesystem::path& path, std::uint64_t line_bytes_max) {
  const std::string name = path == "-" ? "standard input" : path.string();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a folder; name a trace file", name);
  }
  const int file = path == "-" ? dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  gzFile stream = file < 0 ? nullptr : gzdopen(file, "rb");
  if (!stream) {
    const int reason = errno;
    if (file >= 0) close(file);
    return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", name,
                std::strerror(reason));
  }
  gzbuffer(stream, kReadBytes / 2);
  return LineSource(stream, name, line_bytes_max);
}

std::unexpected<Error> LineSource::fail_at(std::uint64_t line, std::size_t column, std::string_view message) const {
  return fail(ErrorCode::kInvalidArgument, "{}:{}:{}: {}", file_, line, column, message);
}

Status LineSource::refill() {
  std::memmove(buffer_.data(), buffer_.data() + next_, filled_ - next_);
  filled_ -= next_;
  next_ = line_ = line_size_ = 0;
  if (filled_ + kReadBytes + kPadding > buffer_.size()) buffer_.resize(2 * buffer_.size());
  const int read = gzread(stream_.get(), buffer_.data() + filled_, kReadBytes);
  int error = Z_OK;
  const char* message = gzerror(stream_.get(), &error);
  if (error == Z_ERRNO) return fail(ErrorCode::kIo, "cannot read {}: {}", file_, std::strerror(errno));
  if (error == Z_BUF_ERROR) {
    return fail(ErrorCode::kInvalidArgument, "{}: the gzip data ends too early, after line {}; get the whole file",
                file_, number_);
  }
  if (read < 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: the gzip data is damaged after line {} ({}); get the file again",
                file_, number_, without_name(message));
  }
  filled_ += static_cast<std::size_t>(read);
  ended_ = read == 0;
  return {};
}

Result<bool> LineSource::read_line() {
  for (std::size_t searched = 0;;) {
    const char* rest = buffer_.data() + next_;
    const std::size_t size = filled_ - next_;
    const void* end = size > searched ? std::memchr(rest + searched, '\n', size - searched) : nullptr;
    const std::size_t length = end ? static_cast<std::size_t>(static_cast<const char*>(end) - rest) : size;
    if (length > line_bytes_max_) {
      return fail_at(
          number_ + 1, 1,
          fmt::format("the line is longer than {} bytes; is this a file with a request a line?", line_bytes_max_));
    }
    if (end || (ended_ && size > 0)) {
      line_ = next_;
      next_ += std::min(length + 1, size);
      line_size_ = length;
      if (line_size_ > 0 && buffer_[line_ + line_size_ - 1] == '\r') --line_size_;
      ++number_;
      return true;
    }
    if (ended_) return false;
    searched = size;
    SHALE_TRY(refill());
  }
}

Result<bool> LineSource::next() {
  if (std::exchange(again_, false)) return true;
  for (;;) {
    SHALE_ASSIGN(const bool more, read_line());
    if (!more) return false;
    if (number_ == 1 && line().starts_with(kByteOrderMark)) {
      line_ += kByteOrderMark.size();
      line_size_ -= kByteOrderMark.size();
    }
    if (is_blank(line())) continue;
    if (const std::size_t at = find_invalid_utf8(line()); at != std::string_view::npos) {
      return fail_at(number_, at + 1, "this is not UTF-8 text; convert the file with iconv");
    }
    return true;
  }
}

}  // namespace shale
