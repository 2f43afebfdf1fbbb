// What commands print: results on stdout, everything else on stderr.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace shale {
using Json = nlohmann::ordered_json;
}

// Nothing is null.
template <>
struct nlohmann::adl_serializer<std::optional<double>> {
  static void to_json(shale::Json& json, const std::optional<double>& value) {
    json = value ? shale::Json(*value) : shale::Json(nullptr);
  }
  static void from_json(const shale::Json& json, std::optional<double>& value) {
    value = json.is_null() ? std::nullopt : std::optional(json.get<double>());
  }
};

namespace shale {

// One JSON object on one line of stdout. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& object);

// Prints to stderr. Text that cannot be written there is lost: a log on a full disk ends no server.
void print_error(std::string_view text);
// A line of it for people.
void print_note(const std::string& text);

// --json and --progress.
struct OutputOptions {
  bool json = false;
  bool progress = false;
  std::function<void(std::string_view text)> print = print_error;  // of how far a step is
};

// Says on stderr how far a step is once it has taken a second: a line that is rewritten on a terminal, plain lines
// with --progress, else nothing. The line is cleared when the step ends.
class Progress {
 public:
  Progress(const OutputOptions& options, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `total` 0: unknown.
  void operator()(std::size_t done, std::size_t total);
  void rename(std::string what) { what_ = std::move(what); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::string what_;
  bool terminal_, enabled_;
  std::function<void(std::string_view text)> print_;
  bool shown_ = false;
  Time next_;
};

}  // namespace shale
