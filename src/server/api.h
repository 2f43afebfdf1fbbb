// The routes of the server: OpenAI's, /health and /metrics.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_server.h"
#include "model/model.h"
#include "server/answer_json.h"
#include "server/answer_request.h"
#include "server/answer_token_cache.h"
#include "server/engine_loop.h"
#include "server/server.h"

namespace shale {

// Thread-safe. What it is given must outlive it.
class Api final : public HttpService {
 public:
  Api(ApiOptions options, EngineLoop& loop, const ModelInfo& model, const Tokenizer& tokenizer);

  std::optional<HttpResponse> answer_head(const HttpRequest& head) override;
  HttpAnswer answer(const HttpRequest& request, HttpWake wake) override;
  HttpResponse refusal(const HttpFailure& failure) override;

 private:
  // The index of the tenant who asks, or -1 where there are none or it is the operator; 401 where nobody has that key.
  ApiResult<int> tenant_of(const HttpRequest& head) const;
  // What needs no body; nothing where the whole request is wanted.
  ApiResult<std::optional<HttpResponse>> look_at(const HttpRequest& head, int tenant) const;
  ApiResult<HttpResponse> get(const HttpRequest& head) const;
  ServerMetrics metrics() const;
  // Of a request that was asked, and by whom.
  struct Asked {
    std::string id;
    std::string_view tenant, peer;
  };
  HttpResponse refused(const ApiError& error, const Asked& asked) const;
  std::string new_id(std::string_view prefix);
  std::string_view name_of(int tenant) const;  // empty of -1
  ApiResult<AnswerRequest> read(Endpoint endpoint, const std::string& body, int tenant) const;
  // What read() finds wrong with a request, or with a prompt of it, by its index.
  std::optional<ApiError> check_choices(const AnswerRequest& request, int tenant) const;
  std::optional<ApiError> check_texts(const AnswerRequest& request, std::span<const std::string_view> texts,
                                      std::size_t prompt) const;
  std::optional<ApiError> check_length(const AnswerRequest& request, std::size_t prompt, std::size_t& together) const;
  ApiError too_long(const AnswerRequest& request, std::size_t prompt, std::string_view what) const;
  std::optional<ApiError> read_chat(AnswerRequest& request) const;
  std::optional<ApiError> read_completions(AnswerRequest& request) const;
  AnswerHead head_of(Endpoint endpoint);
  ApiResult<HttpResponse> model(std::string_view name) const;
  Json model_json() const;

  const ApiOptions options_;
  EngineLoop& loop_;
  const ModelInfo& model_;
  const Tokenizer& tokenizer_;
  const std::int64_t started_;  // Unix time
  Tenants tenants_;
  const std::uint64_t process_;  // in ids, which tell nobody how many there were
  std::atomic<std::uint64_t> ids_ = 0;
  AnswerTokenCache answer_tokens_{std::size_t{16} << 20};
};

}  // namespace shale
