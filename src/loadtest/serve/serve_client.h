// A client of a server under measurement: one chat over HTTP, streamed, and when each piece of the answer came.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "report/output.h"

namespace shale {

// A lossy form over which a server answered.
struct ServedForm {
  std::string method;
  double keep = 1;
  std::uint32_t tokens = 0;
  std::string from;  // the pool, or a tier

  bool operator==(const ServedForm&) const = default;
};
void to_json(Json& json, const ServedForm& form);
void from_json(const Json& json, ServedForm& form);

// Times count from when the request was planned to be sent.
struct ServedAnswer {
  std::vector<double> pieces_s;  // when each piece of text had come; a token, but for those without text of their own
  double end_s = 0;
  std::uint32_t prompt_tokens = 0, completion_tokens = 0, computed_tokens = 0;
  std::map<std::string, std::uint64_t> cached_tokens;  // by where they came from, as the server names it
  bool lossy = false;
  std::vector<ServedForm> forms;
  std::optional<double> expected_quality;  // as the server says
  std::string text;
  std::string error;  // empty: answered to its end
};

// A chat's body: the context is its system message; what was `said` are questions and answers in turn, the last one the
// question that is asked. Greedy. `to_the_end`: as long as asked whatever the model says, so that every server does the
// same work.
std::string chat_body(std::string_view context, const std::vector<std::string>& said, std::uint32_t answer_tokens,
                      bool exact, bool to_the_end = true);

// Cuts a stream of server-sent events into the data of each, however its bytes arrive.
class EventStream {
 public:
  explicit EventStream(std::function<void(std::string_view data)> on_data) : on_data_(std::move(on_data)) {}
  void push(std::string_view bytes);
  // Bytes that came and are no event yet: the body of a reply that is no stream.
  const std::string& rest() const { return line_; }

 private:
  std::function<void(std::string_view)> on_data_;
  std::string line_;
};

// Posts `body` to /v1/chat/completions of 127.0.0.1 and reads the stream to its end; it was planned for `planned_s` of
// the clock. Fails, as `error`, after `wait_s_max` without a byte. `key`: that the server wants, if any.
ServedAnswer ask_server(std::uint16_t port, const std::string& body, const Clock& clock, double planned_s,
                        double wait_s_max, const std::string& key = {});

}  // namespace shale
