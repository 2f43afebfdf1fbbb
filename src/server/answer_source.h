// An answer running, as HTTP sends it: whole at its end, or as server-sent events.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http_server.h"
#include "server/answer_json.h"
#include "server/answer_token_cache.h"
#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/request_log.h"
#include "server/token_teller.h"

namespace shale {

HttpResponse json_response(const Json& json, int status = 200);
HttpResponse json_response(const ApiError& error);
// Says which request it answers, as the log has it.
HttpResponse with_id(HttpResponse response, const std::string& id);

// Notes on the request that is answered.
struct AnswerNotes {
  std::string warning = {};                   // sent with the answer; empty: none
  std::string tenant = {};                    // for the log
  std::string peer = {};                      // for the log of a refusal
  std::string salt = {};                      // of the request
  std::shared_ptr<RequestLog> log = nullptr;  // null: none
};

// Of one or more choices, those of a prompt one after another. An error of one is the end of all, as with vLLM: the
// whole answer, or the last event of a stream. Dropping the answer cancels what has not ended. Tokens of chats' answers
// are kept in `answer_tokens`, which must outlive it.
class AnswerSource final : public HttpSource {
 public:
  struct Stream {
    bool on = false;
    bool include_usage = false;  // in an event of its own at the end
    bool running_usage = false;  // the others say of their choice what is known so far
  };
  struct Choice {
    TokenTeller teller;
    std::size_t prompt_tokens = 0;
    bool role_sent = false;
    std::size_t tokens = 0;                 // so far, of a stream
    std::optional<Response> response = {};  // once it has ended
    std::string json = {};                  // of one that is sent whole, from then on
  };
  // `answer`: of as many requests. `of_prompt`: choices of each prompt. `wake`: asks for `next` again, soon.
  AnswerSource(AnswerHead head, Stream stream, std::vector<Choice> choices, std::size_t of_prompt, Answer answer,
               AnswerTokenCache& answer_tokens, AnswerNotes notes, HttpWake wake)
      : head_(std::move(head)),
        stream_(stream),
        of_prompt_(of_prompt),
        notes_(std::move(notes)),
        wake_(std::move(wake)),
        choices_(std::move(choices)),
        answer_(std::move(answer)),
        answer_tokens_(answer_tokens),
        whole_(stream_.on ? Json() : answer_json(head_)) {}
  ~AnswerSource() override;

  std::optional<Part> next() override;

 private:
  std::optional<Part> whole();
  std::optional<Part> events();
  std::string told_whole(Choice& choice, const Channel::Part& part);
  std::string whole_body();
  HttpResponse stream_head() const;
  std::string told(const Choice& choice, Json chunk, std::size_t tokens) const;
  std::string events_of(Choice& choice, const Channel::Part& part) const;
  void end(Choice& choice, Response response);
  AnswerUsage log_end();
  void log_failure(int status, const ApiError& error, const Response& response);
  void add_warning(HttpResponse& response) const;
  void log(RequestEnd end);

  const AnswerHead head_;
  const Stream stream_;
  const std::size_t of_prompt_;
  const AnswerNotes notes_;
  const HttpWake wake_;
  const std::chrono::steady_clock::time_point begun_at_ = std::chrono::steady_clock::now();
  bool logged_ = false;
  std::vector<Choice> choices_;
  Answer answer_;
  AnswerTokenCache& answer_tokens_;
  Json whole_;                          // the answer, less its choices and its usage
  bool taken_ = false, begun_ = false;  // by the engine; to be sent
  std::size_t ended_ = 0;               // choices
};

}  // namespace shale
