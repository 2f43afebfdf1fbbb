// JSON Lines: an object a line, read field by field with simdjson's On-Demand parser, every error with its place.
// Private to the room.
//
// Values must be read, or skipped, in the order in which they come; whatever is skipped is checked as well.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "trace/line_source.h"

namespace shale {

using JsonValue = simdjson::ondemand::value;

// The places of an object's fields in its line, null for missing ones.
class JsonPlaces {
 public:
  static constexpr std::size_t kMax = 24;
  const char* operator[](std::size_t field) const { return at_[field]; }

 private:
  friend class JsonLine;
  std::array<const char*, kMax> at_{};
};

class JsonLine {
 public:
  // Reads from `lines`, whose current line this object's is.
  explicit JsonLine(LineSource& lines) : lines_(&lines) {}

  // Calls `on_field(index into names, value) -> Status` for the fields of the line's object that are among `names` (at
  // most JsonPlaces::kMax). Other fields may be there; none may be there twice, and nothing may follow the object.
  template <class OnField>
  Result<JsonPlaces> object(std::span<const std::string_view> names, OnField&& on_field) {
    const std::string_view line = lines_->line();
    if (const auto error = parser_.iterate(line.data(), line.size(), line.size() + LineSource::kPadding).get(document_))
      return line_error(error);
    simdjson::ondemand::object object;
    if (const auto error = document_.get_object().get(object)) {
      if (error != simdjson::INCORRECT_TYPE) return syntax_error(error);
      return fail_at(line.data(), "a JSON object, {{…}}, is expected");
    }
    SHALE_ASSIGN(const JsonPlaces places, fields(object, names, on_field));
    if (const char* more; !document_.current_location().get(more))
      return fail_at(more, "nothing may follow the object on its line");
    return places;
  }
  // The same for an object within the line.
  template <class OnField>
  Result<JsonPlaces> object(JsonValue value, std::span<const std::string_view> names, OnField&& on_field) {
    simdjson::ondemand::object object;
    if (const auto error = value.get_object().get(object))
      return type_error(value, error, "an object, {…}, is expected");
    return fields(object, names, on_field);
  }

  // Calls `on_element(value) -> Status` for each.
  template <class OnElement>
  Status array(JsonValue value, OnElement&& on_element) {
    simdjson::ondemand::array array;
    if (const auto error = value.get_array().get(array)) return type_error(value, error, "an array, […], is expected");
    for (auto element : array) {
      JsonValue found;
      if (const auto error = element.get(found)) return syntax_error(error);
      SHALE_TRY(on_element(found));
    }
    return {};
  }

  // The readers of single values leave `out` alone when they fail.
  Status count(JsonValue value, std::uint64_t& out, std::uint64_t max);
  Status count(JsonValue value, std::uint32_t& out, std::uint32_t max = std::numeric_limits<std::uint32_t>::max());
  // Any finite number.
  Status number(JsonValue value, double& out);
  // Valid until the next line.
  Status string(JsonValue value, std::string_view& out);
  // A whole number of 64 bits, with or without a sign, or a string, which is hashed.
  Status id(JsonValue value, std::uint64_t& out);
  // Checks that it is JSON, no more.
  Status skip(JsonValue value) { return skip(value, 0); }

  // Where a value begins; to be asked before it is read.
  static const char* place(JsonValue& value) { return value.raw_json_token().data(); }

  template <class... Args>
  std::unexpected<Error> fail_at(const char* at, fmt::format_string<Args...> format, Args&&... args) const {
    return lines_->fail_at(at, format, std::forward<Args>(args)...);
  }

 private:
  template <class OnField>
  Result<JsonPlaces> fields(simdjson::ondemand::object& object, std::span<const std::string_view> names,
                            OnField&& on_field) {
    JsonPlaces places;
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) return syntax_error(error);
      JsonValue value;
      if (const auto error = field.value().get(value)) return syntax_error(error);
      const auto index = static_cast<std::size_t>(std::find(names.begin(), names.end(), key) - names.begin());
      if (index == names.size()) {
        SHALE_TRY(skip(value));
        continue;
      }
      const char* at = place(value);
      if (std::exchange(places.at_[index], at)) return fail_at(at, "\"{}\" is here twice", names[index]);
      SHALE_TRY(on_field(index, value));
    }
    return places;
  }

  Status skip(JsonValue value, int depth);
  const char* here();
  // The error of a line that could not be divided into tokens; there is no document then.
  std::unexpected<Error> line_error(simdjson::error_code error) const;
  std::unexpected<Error> syntax_error(simdjson::error_code error);
  // `expected`, or that the value is no JSON at all.
  std::unexpected<Error> type_error(JsonValue& value, simdjson::error_code error, std::string_view expected);

  LineSource* lines_;
  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
};

}  // namespace shale
