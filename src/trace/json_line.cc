#include "trace/json_line.h"

#include <cmath>

#include "core/hash.h"

namespace shale {
namespace {

constexpr int kDepthMax = 64;

// The line's start where there is none.
const char* find_control_in_string(std::string_view line) {
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_string && static_cast<unsigned char>(line[i]) < 0x20) return line.data() + i;
    if (in_string && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      in_string = !in_string;
    }
  }
  return line.data();
}

}  // namespace

const char* JsonLine::here() {
  const std::string_view line = lines_->line();
  const char* at = nullptr;
  const bool inside = !document_.current_location().get(at) && at >= line.data() && at <= line.data() + line.size();
  return inside ? at : line.data() + line.size();
}

std::unexpected<Error> JsonLine::line_error(simdjson::error_code error) const {
  const std::string_view line = lines_->line();
  switch (error) {
    case simdjson::UNCLOSED_STRING:
      return fail_at(line.data() + line.size(), "the line ends within a string; is the file cut short?");
    case simdjson::UNESCAPED_CHARS:
      return fail_at(find_control_in_string(line), "a control character stands unescaped in a string");
    case simdjson::MEMALLOC:
      return fail(ErrorCode::kFull, "no memory left to read {}", lines_->file());
    default:
      return fail_at(line.data(), "this is not JSON; the line must be one object");
  }
}

std::unexpected<Error> JsonLine::syntax_error(simdjson::error_code error) {
  if (error == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) {
    const std::string_view line = lines_->line();
    return fail_at(line.data() + line.size(), "the line does not end where its object does; is the file cut short?");
  }
  return fail_at(here(), "this is not JSON; the line must be one object");
}

std::unexpected<Error> JsonLine::type_error(JsonValue& value, simdjson::error_code error, std::string_view expected) {
  if (error == simdjson::INCORRECT_TYPE) return fail_at(place(value), "{}", expected);
  return syntax_error(error);
}

Status JsonLine::count(JsonValue value, std::uint64_t& out, std::uint64_t max) {
  std::uint64_t number = 0;
  if (value.get_uint64().get(number) || number > max) {
    return fail_at(place(value), "a whole number from 0 to {} is expected", max);
  }
  out = number;
  return {};
}

Status JsonLine::count(JsonValue value, std::uint32_t& out, std::uint32_t max) {
  std::uint64_t number = 0;
  SHALE_TRY(count(value, number, max));
  out = static_cast<std::uint32_t>(number);
  return {};
}

Status JsonLine::number(JsonValue value, double& out) {
  double number = 0;
  if (value.get_double().get(number) || !std::isfinite(number)) return fail_at(place(value), "a number is expected");
  out = number;
  return {};
}

Status JsonLine::string(JsonValue value, std::string_view& out) {
  if (const auto error = value.get_string().get(out)) return type_error(value, error, "a string is expected");
  return {};
}

Status JsonLine::id(JsonValue value, std::uint64_t& out) {
  if (!value.get_uint64().get(out)) return {};
  std::int64_t negative = 0;
  std::string_view text;
  if (!value.get_int64().get(negative)) {
    out = static_cast<std::uint64_t>(negative);
  } else if (!value.get_string().get(text)) {
    out = hash128(std::as_bytes(std::span(text))).low;
  } else {
    return fail_at(place(value), "a block's id is expected: a whole number of 64 bits, or a string");
  }
  return {};
}

Status JsonLine::skip(JsonValue value, int depth) {
  const char* at = place(value);
  if (depth > kDepthMax) return fail_at(at, "more than {} objects and arrays within each other", kDepthMax);
  simdjson::ondemand::json_type type;
  if (const auto error = value.type().get(type)) return syntax_error(error);
  simdjson::error_code error = simdjson::SUCCESS;
  switch (type) {
    case simdjson::ondemand::json_type::array:
      return array(value, [&](JsonValue element) { return skip(element, depth + 1); });
    case simdjson::ondemand::json_type::object: {
      simdjson::ondemand::object object;
      if ((error = value.get_object().get(object))) return syntax_error(error);
      for (auto field : object) {
        std::string_view key;
        if ((error = field.unescaped_key().get(key))) return syntax_error(error);
        JsonValue inner;
        if ((error = field.value().get(inner))) return syntax_error(error);
        SHALE_TRY(skip(inner, depth + 1));
      }
      return {};
    }
    case simdjson::ondemand::json_type::number:
      error = value.get_double().error();
      break;
    case simdjson::ondemand::json_type::string:
      error = value.get_string().error();
      break;
    case simdjson::ondemand::json_type::boolean:
      error = value.get_bool().error();
      break;
    case simdjson::ondemand::json_type::null:
      error = value.is_null().error();
      break;
  }
  if (error) return fail_at(at, "this is not JSON; the line must be one object");
  return {};
}

}  // namespace shale
