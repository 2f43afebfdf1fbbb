// An answer under way, as HTTP sends it: whole at its end, or as server-sent events.
#pragma once

#include <optional>
#include <utility>

#include "server/answer_json.h"
#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/http_server.h"
#include "server/said_answers.h"

namespace shale {

HttpResponse json_response(const Json& json, int status = 200);
HttpResponse json_response(const ApiError& error);

// Dropping it cancels the request. Answers of chats are remembered in `said`, which must outlive it.
class AnswerSource final : public HttpSource {
 public:
  struct Stream {
    bool on = false;
    bool include_usage = false;  // in an event of its own at the end
  };
  AnswerSource(AnswerHead head, Stream stream, Answer answer, SaidAnswers& said)
      : head_(std::move(head)), stream_(stream), answer_(std::move(answer)), said_(said) {}

  std::optional<Part> next() override;

 private:
  HttpResponse whole(const Response& response);
  Part events(const Channel::Part& part);
  void remember(const Response& response);

  const AnswerHead head_;
  const Stream stream_;
  Answer answer_;
  SaidAnswers& said_;
  bool begun_ = false;
};

}  // namespace shale
