// The routes of the server: OpenAI's, /health and /metrics.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "model/model.h"
#include "server/answer_json.h"
#include "server/answer_request.h"
#include "server/engine_loop.h"
#include "server/http_server.h"
#include "server/said_answers.h"
#include "server/server.h"

namespace shale {

// Thread-safe: HttpServer calls its handlers on many threads. What it is given must outlive it.
class Api {
 public:
  Api(ApiOptions options, EngineLoop& loop, const ModelInfo& model, const Tokenizer& tokenizer);

  void add_to(HttpServer& http);
  // Returns once no answer is being streamed.
  void wait_for_streams() const;

 private:
  struct Stream;

  httplib::Server::HandlerResponse check(const httplib::Request& request, httplib::Response& response) const;
  void answer(Endpoint endpoint, const httplib::Request& request, httplib::Response& response);
  ApiResult<AnswerRequest> read(Endpoint endpoint, const std::string& body) const;
  ApiResult<std::vector<Segment>> prompt_of(AnswerRequest& request) const;
  AnswerHead head_of(Endpoint endpoint);
  void answer_whole(const AnswerHead& head, Answer answer, httplib::Response& response);
  void answer_stream(AnswerHead head, Answer answer, bool include_usage, httplib::Response& response);
  void said(const AnswerHead& head, const Response& response);
  void models(httplib::Response& response) const;
  void model(const std::string& name, httplib::Response& response) const;
  Json model_json() const;

  const ApiOptions options_;
  EngineLoop& loop_;
  const ModelInfo& model_;
  const Tokenizer& tokenizer_;
  const std::int64_t started_;   // Unix time
  const std::uint64_t process_;  // in the ids of answers, so that they differ from those of other processes
  std::atomic<std::uint64_t> answers_ = 0;
  std::atomic<std::uint32_t> streams_ = 0;
  SaidAnswers said_{std::size_t{16} << 20};
};

}  // namespace shale
