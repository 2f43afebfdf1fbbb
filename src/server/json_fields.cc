#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace shale {
namespace {

// What the body breaks, counted by its punctuation outside strings, well-formed or not. No tree of it has more nodes.
std::optional<ApiError> check_shape(std::string_view bytes, const JsonBounds& bounds) {
  std::vector<std::size_t> fields;  // of each object or list that is open
  std::size_t nodes = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '[':
      case '{':
        if (fields.size() == bounds.depth_max) {
          return ApiError{.message = fmt::format("the body is nested deeper than {} levels", bounds.depth_max)};
        }
        fields.push_back(0);
        ++nodes;
        break;
      case ']':
      case '}':
        if (!fields.empty()) fields.pop_back();
        break;
      case ',':
        ++nodes;
        break;
      case ':':
        if (!fields.empty() && ++fields.back() > bounds.fields_max) {
          return ApiError{.message = fmt::format("the body has an object of more than {} fields", bounds.fields_max)};
        }
        break;
      default:
        break;
    }
    if (nodes > bounds.nodes_max) {
      return ApiError{.message = fmt::format("the body has more than {} values", bounds.nodes_max)};
    }
  }
  return std::nullopt;
}

// Compares words of four letters and more.
bool one_slip_apart(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() < 4 || b.size() > a.size() + 1) return false;
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::string_view left = a.substr(same), right = b.substr(same);
  if (b.size() > a.size()) return left == right.substr(1);
  if (left.empty() || left.substr(1) == right.substr(1)) return true;
  return left.size() > 1 && left[0] == right[1] && left[1] == right[0] && left.substr(2) == right.substr(2);
}

}  // namespace

ApiResult<Json> parse_json(std::string_view bytes, const JsonBounds& bounds) {
  if (const std::size_t at = find_invalid_utf8(bytes); at != std::string_view::npos) {
    return std::unexpected(ApiError{.message = fmt::format("the body is not UTF-8 at byte {}", at)});
  }
  if (auto error = check_shape(bytes, bounds)) return std::unexpected(std::move(*error));
  try {
    return Json::parse(bytes);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, …; last read: '…'", which may be of a prompt.
    std::string_view text = error.what();
    text = text.substr(0, text.find("; last read: "));
    const std::size_t id = text.find("] ");
    return std::unexpected(
        ApiError{.message = fmt::format("the body is not JSON: {}", id == text.npos ? text : text.substr(id + 2))});
  }
}

std::string JsonFields::misspelt() const {
  for (const auto& [given, value] : object_.items()) {
    const auto in_names = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (!std::ranges::all_of(given, in_names) || std::ranges::find(asked_, given) != asked_.end()) continue;
    const auto meant = std::ranges::find_if(asked_, [&](std::string_view name) { return one_slip_apart(given, name); });
    if (meant != asked_.end()) return fmt::format("unknown field '{}' (did you mean '{}'?)", given, *meant);
  }
  return {};
}

const Json* JsonFields::find(const char* name) const {
  asked_.emplace_back(name);
  if (error_) return nullptr;
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

void JsonFields::text(const char* name, std::string& value, std::size_t bytes_max) {
  const Json* field = find(name);
  if (!field) return;
  if (!field->is_string()) return fail(name, "must be a string");
  const auto& text = field->get_ref<const std::string&>();
  if (text.size() > bytes_max) return fail(name, fmt::format("must be at most {} bytes long", bytes_max));
  value = text;
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
