// An answer running, as HTTP sends it: whole at its end, or as server-sent events.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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

// Dropping it cancels the request. Tokens of chats' answers are kept in `answer_tokens`, which must outlive it.
class AnswerSource final : public HttpSource {
 public:
  struct Stream {
    bool on = false;
    bool include_usage = false;                       // in an event of its own at the end
    std::optional<std::uint32_t> prompt_tokens = {};  // where the other events say so far as it is known
  };
  AnswerSource(AnswerHead head, Stream stream, TokenTeller teller, Answer answer, AnswerTokenCache& answer_tokens,
               AnswerNotes notes)
      : head_(std::move(head)),
        stream_(stream),
        notes_(std::move(notes)),
        teller_(std::move(teller)),
        answer_(std::move(answer)),
        answer_tokens_(answer_tokens) {}
  ~AnswerSource() override;

  std::optional<Part> next() override;

 private:
  HttpResponse whole(const Channel::Part& part);
  Part events(const Channel::Part& part);
  std::string told(Json chunk, std::size_t tokens) const;
  void keep_tokens(const Response& response);
  void add_warning(HttpResponse& response) const;
  void log(int status, std::string_view outcome, std::string_view why, const Response* response);

  const AnswerHead head_;
  const Stream stream_;
  const AnswerNotes notes_;
  const std::chrono::steady_clock::time_point begun_at_ = std::chrono::steady_clock::now();
  bool logged_ = false;
  TokenTeller teller_;
  Answer answer_;
  AnswerTokenCache& answer_tokens_;
  bool begun_ = false, role_sent_ = false;
  std::size_t tokens_ = 0;  // of the answer so far
};

}  // namespace shale
