// A JSON object from outside, read field by field into typed places.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace shale {

// What a tree is bounded by before it is made: it takes many times as much memory as its text, and looking for a field
// takes time linear in those of its object.
struct JsonBounds {
  std::size_t depth_max = 32;
  std::size_t nodes_max = std::size_t{1} << 18;  // a list of tokens has one each
  std::size_t fields_max = 256;                  // of one object
};

// Parses bytes of any origin. What is beyond the bounds, or is no JSON, is an error; its place is told.
ApiResult<Json> parse_json(std::string_view bytes, const JsonBounds& bounds = {});

// A field that is absent or null leaves its place as it was. The first field that is wrong is the error, and what is
// read after it changes nothing. The object must outlive the reader.
class JsonFields {
 public:
  explicit JsonFields(const Json& object) : object_(object) {}

  // Null where there is no such field, it is null, or an error came before.
  const Json* find(const char* name) const;
  void text(const char* name, std::string& value, std::size_t bytes_max = 256);
  void flag(const char* name, bool& value);
  void number(const char* name, float& value, double min, double max);
  void number(const char* name, double& value, double min, double max);
  template <std::unsigned_integral T>
  void whole(const char* name, T& value, T min, T max) {
    if (const auto read = whole_of(name, min, max)) value = static_cast<T>(*read);
  }
  // A field that asks for what this server cannot do, unless it says `harmless`.
  void refuse(const char* name, const Json& harmless, std::string_view why);

  // "unknown field 'exat' (did you mean 'exact'?)" for the first field that nothing has asked for and that differs from
  // one that was by one letter more, less or other, or by two in the other order; empty where there is none.
  std::string misspelt() const;

  void fail(const char* name, std::string message);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::optional<std::uint64_t> whole_of(const char* name, std::uint64_t min, std::uint64_t max);

  const Json& object_;
  mutable std::vector<std::string_view> asked_;  // names, which are constants
  std::optional<ApiError> error_;
};

}  // namespace shale
