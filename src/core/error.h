// Errors as values. No exception crosses a room of `src/`.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace shale {

enum class ErrorCode {
  kInvalidArgument,  // the caller's or user's input is wrong
  kNotFound,         // a miss
  kCorrupt,          // bytes fail a checksum or do not parse
  kMismatch,         // sound bytes of another model, version or configuration
  kUnsupported,      // understood, but not something this build can do
  kFull,             // no room: pool, tier or disk
  kIo,               // the operating system said no
  kBusy,             // somebody else holds it (a second process, a pinned object)
  kCancelled,
  kInternal,
};

std::string_view to_string(ErrorCode code);

// `message` says what was wrong, where, and what to do about it, in one line fit for a user.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// Prefixes an error's message with where it happened: `context("cache folder /x", error)`.
[[nodiscard]] std::unexpected<Error> fail_in(std::string_view where, Error error);

}  // namespace shale

#define SHALE_CONCAT_INNER(a, b) a##b
#define SHALE_CONCAT(a, b) SHALE_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Result or Status) from the calling function.
#define SHALE_TRY(expression)                                  \
  do {                                                         \
    if (auto shale_status = (expression); !shale_status) {     \
      return std::unexpected(std::move(shale_status).error()); \
    }                                                          \
  } while (false)

// `SHALE_ASSIGN(auto x, make_x());` declares or assigns x, or returns the error.
#define SHALE_ASSIGN(target, expression) SHALE_ASSIGN_INNER(SHALE_CONCAT(shale_result_, __LINE__), target, expression)
#define SHALE_ASSIGN_INNER(name, target, expression)          \
  auto name = (expression);                                   \
  if (!name) return std::unexpected(std::move(name).error()); \
  target = std::move(*name)
