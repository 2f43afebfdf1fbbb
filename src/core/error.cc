#include "core/error.h"

namespace shale {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kFull:
      return "full";
    case ErrorCode::kIo:
      return "I/O error";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal error";
  }
  return "unknown error";
}

std::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = fmt::format("{}: {}", where, error.message);
  return std::unexpected(std::move(error));
}

}  // namespace shale
