// The server's log: a line about every request, when it has ended, and one whenever something else is to be told.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "server/answer_usage.h"

namespace shale {

// How a request ended.
struct RequestEnd {
  std::string_view id = {}, tenant = {};  // as the client was told; empty: none
  int status = 200;                       // of HTTP
  // "length", "end_of_turn", …, each that a choice has; "refused", "gone" (the client)
  std::string_view outcome = {};
  std::string_view why = {};           // it was refused or failed
  const AnswerUsage* usage = nullptr;  // where the engine ended it
  bool failed = false;                 // by an error of the engine
  double seconds = 0;                  // since it came
  std::string_view peer = {};          // the address that a refused one came from
};

// What each level logs: kError, requests that the server failed; kWarn, besides, trouble with storage, requests that
// were refused or that name what nobody knows; kInfo, every request.
enum class LogLevel { kError, kWarn, kInfo };
LogLevel level_of(const RequestEnd& end);

// Thread-safe.
class RequestLog {
 public:
  enum class Form { kText, kJson };
  // Takes a line and its end. Must not wait: the engine and all connections would.
  using Write = std::function<void(std::string_view line)>;
  // `write` is called with lines of that level or a graver one, one call at a time.
  RequestLog(Form form, LogLevel level, Write write) : form_(form), level_(level), write_(std::move(write)) {}

  void add(const RequestEnd& end);
  void note(LogLevel level, std::string_view text);

 private:
  void write(std::string_view line);

  const Form form_;
  const LogLevel level_;
  std::mutex mutex_;  // guards what follows
  const Write write_;
};

// What a note is written as.
std::string note_line(RequestLog::Form form, LogLevel level, std::string_view text);
// The line itself, without its end. `wall_s`: seconds since 1970.
std::string text_line(const RequestEnd& end, double wall_s);
std::string json_line(const RequestEnd& end, double wall_s);

}  // namespace shale
