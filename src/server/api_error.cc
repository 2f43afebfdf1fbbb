#include "server/api_error.h"

namespace shale {
namespace {

const char* type_of(int status) {
  if (status >= 500) return "server_error";
  if (status == 429) return "rate_limit_error";
  return status == 401 ? "authentication_error" : "invalid_request_error";
}

// Messages repeat what a client sent: not all of it.
std::string shown(const std::string& message) {
  constexpr std::size_t kBytesMax = 500;
  return message.size() <= kBytesMax ? message : message.substr(0, kBytesMax) + "…";
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError refusal(const Error& error) {
  switch (error.code) {
    case ErrorCode::kBusy:
      return {.status = 429, .message = error.message, .code = "rate_limit_exceeded"};
    case ErrorCode::kCancelled:
      return {.status = 503, .message = error.message, .code = "shutting_down"};
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kFull:
      return {.status = 400, .message = error.message};
    default:
      return {.status = 500, .message = error.message};
  }
}

ApiError failure(const Error& error) {
  return {.status = error.code == ErrorCode::kFull ? 503 : 500, .message = error.message};
}

Json to_json(const ApiError& error) {
  return {{"error",
           {{"message", shown(error.message)},
            {"type", type_of(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

}  // namespace shale
