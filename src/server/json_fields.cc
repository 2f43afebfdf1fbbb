#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace shale {
namespace {

// Of brackets outside strings, well-formed or not.
std::size_t depth_of(std::string_view bytes) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

ApiResult<Json> parse_json(std::string_view bytes, std::size_t depth_max) {
  if (const std::size_t at = find_invalid_utf8(bytes); at != std::string_view::npos) {
    return std::unexpected(ApiError{.message = fmt::format("the body is not UTF-8 at byte {}", at)});
  }
  if (depth_of(bytes) > depth_max) {
    return std::unexpected(ApiError{.message = fmt::format("the body is nested deeper than {} levels", depth_max)});
  }
  try {
    return Json::parse(bytes);
  } catch (const Json::exception& error) {
    const std::string_view text = error.what();
    const std::size_t id = text.find("] ");  // "[json.exception.parse_error.101] parse error at line 1, …"
    return std::unexpected(
        ApiError{.message = fmt::format("the body is not JSON: {}", id == text.npos ? text : text.substr(id + 2))});
  }
}

const Json* JsonFields::find(const char* name) const {
  if (error_) return nullptr;
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

void JsonFields::text(const char* name, std::string& value) {
  const Json* field = find(name);
  if (!field) return;
  if (!field->is_string()) return fail(name, "must be a string");
  value = field->get<std::string>();
}

void JsonFields::flag(const char* name, bool& value) {
  const Json* field = find(name);
  if (!field) return;
  if (!field->is_boolean()) return fail(name, "must be true or false");
  value = field->get<bool>();
}

void JsonFields::number(const char* name, double& value, double min, double max) {
  const Json* field = find(name);
  if (!field) return;
  const double read = field->is_number() ? field->get<double>() : min - 1;
  if (!(read >= min && read <= max)) return fail(name, fmt::format("must be a number from {} to {}", min, max));
  value = read;
}

void JsonFields::number(const char* name, float& value, double min, double max) {
  double wide = value;
  number(name, wide, min, max);
  value = static_cast<float>(wide);
}

std::optional<std::uint64_t> JsonFields::whole_of(const char* name, std::uint64_t min, std::uint64_t max) {
  const Json* field = find(name);
  if (!field) return std::nullopt;
  if (field->is_number_unsigned()) {
    const auto read = field->get<std::uint64_t>();
    if (read >= min && read <= max) return read;
  }
  fail(name, fmt::format("must be a whole number from {} to {}", min, max));
  return std::nullopt;
}

void JsonFields::refuse(const char* name, const Json& harmless, std::string_view why) {
  const Json* field = find(name);
  if (field && *field != harmless) fail(name, std::string(why));
}

void JsonFields::fail(const char* name, std::string message) {
  if (!error_) error_ = ApiError{.message = fmt::format("{} {}", name, message), .param = name};
}

}  // namespace shale
