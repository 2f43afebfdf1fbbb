// Errors as OpenAI's API has them: a status of HTTP and an object that its clients turn into exceptions.
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"

namespace shale {

using Json = nlohmann::ordered_json;

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field of the request that is wrong; empty: none in particular
  std::string code = {};   // for programs, "model_not_found"; empty: none
  std::string allow = {};  // methods that the route has, where the request's is none of them
};

template <class T>
using ApiResult = std::expected<T, ApiError>;

// What the engine refused or failed with. kInvalidArgument is 400 and so is kFull, a request that can never fit; what
// may pass when tried again is 429 (kBusy) or 503 (kCancelled: shutting down).
ApiError refusal(const Error& error);
// What befell a request running: 503 where the pool ran out, so that clients try again, else 500.
ApiError failure(const Error& error);

// {"error": {"message", "type", "param", "code"}}; the type follows from the status. Long messages are cut.
Json to_json(const ApiError& error);

}  // namespace shale
