#include "server/api.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/random.h"
#include "server/metrics_text.h"

namespace shale {
namespace {

constexpr std::chrono::milliseconds kLook(50);  // between two looks at whether the client is still there

std::int64_t unix_time() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

void reply(httplib::Response& response, const Json& json) { response.set_content(dump(json), "application/json"); }

void reply(httplib::Response& response, const ApiError& error) {
  response.status = error.status;
  reply(response, to_json(error));
}

// Takes as long wherever the two differ.
bool same(std::string_view given, std::string_view wanted) {
  unsigned different = given.size() != wanted.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    different |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(wanted[i % wanted.size()]);
  }
  return different == 0;
}

std::vector<Token> completion_prompt(const Tokenizer& tokenizer, AnswerRequest& request) {
  if (!request.prompt_tokens.empty()) return std::move(request.prompt_tokens);
  return tokenizer.tokenize(request.prompt, true);
}

ApiError cancelled() { return refusal({ErrorCode::kCancelled, "the server is shutting down"}); }

}  // namespace

struct Api::Stream {
  Stream(Api& served, AnswerHead answer_head, Answer started, bool with_usage)
      : api(served), head(std::move(answer_head)), answer(std::move(started)), include_usage(with_usage) {
    ++api.streams_;
  }
  ~Stream() {
    --api.streams_;
    api.streams_.notify_all();
  }

  // Sends what has come; false once the client has gone.
  bool send(httplib::DataSink& sink) {
    std::string out;
    if (!std::exchange(begun, true) && head.endpoint == Endpoint::kChat) out += event(role_chunk(head));
    const auto part = answer.next(kLook);
    if (part && !part->text.empty()) out += event(text_chunk(head, part->text));
    if (part && part->response) out += end(*part->response);
    if (out.empty()) return sink.is_writable();
    if (!sink.write(out.data(), out.size())) return false;
    if (part && part->response) sink.done();
    return true;
  }

  std::string end(const Response& response) {
    if (response.error) return event(to_json(failure(*response.error)));
    if (response.stop == StopReason::kCancelled) return event(to_json(cancelled()));
    api.said(head, response);
    std::string out = event(end_chunk(head, response));
    if (include_usage) out += event(usage_chunk(head, response));
    return out.append(kStreamEnd);
  }

  Api& api;
  const AnswerHead head;
  Answer answer;
  const bool include_usage;
  bool begun = false;
};

Api::Api(ApiOptions options, EngineLoop& loop, const ModelInfo& model, const Tokenizer& tokenizer)
    : options_(std::move(options)),
      loop_(loop),
      model_(model),
      tokenizer_(tokenizer),
      started_(unix_time()),
      process_(random_number()) {}

void Api::add_to(HttpServer& http) {
  using httplib::Request, httplib::Response;
  http.set_payload_max_length(options_.body_bytes_max);
  http.set_pre_routing_handler([this](const Request& request, Response& response) { return check(request, response); });
  http.set_error_handler(httplib::Server::Handler([](const Request& request, Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    reply(response, ApiError{.status = status,
                             .message = status == 404   ? "there is no " + request.method + " " + request.path
                                        : status == 413 ? std::string("the body is too long")
                                                        : fmt::format("HTTP status {}", status)});
  }));
  http.set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    reply(response, ApiError{.status = 500, .message = "the request could not be served"});
  });
  http.Post("/v1/chat/completions",
            [this](const Request& request, Response& response) { answer(Endpoint::kChat, request, response); });
  http.Post("/v1/completions",
            [this](const Request& request, Response& response) { answer(Endpoint::kCompletions, request, response); });
  http.Get("/v1/models", [this](const Request&, Response& response) { models(response); });
  http.Get("/v1/models/(.+)",
           [this](const Request& request, Response& response) { model(request.matches[1], response); });
  http.Get("/health", [](const Request&, Response& response) { reply(response, Json{{"status", "ok"}}); });
  http.Get("/metrics", [this](const Request&, Response& response) {
    response.set_content(metrics_text(loop_.figures(), options_.model_name), std::string(kMetricsType));
  });
}

void Api::wait_for_streams() const {
  while (const std::uint32_t streams = streams_) streams_.wait(streams);
}

// Before a body is read. Only JSON is, and plain: a browser's page cannot send it to another origin unasked, and it is
// as long as it says.
httplib::Server::HandlerResponse Api::check(const httplib::Request& request, httplib::Response& response) const {
  std::optional<ApiError> error;
  if (!options_.api_key.empty() && request.path != "/health" &&
      !same(request.get_header_value("Authorization"), "Bearer " + options_.api_key)) {
    error = {.status = 401,
             .message = "this server wants its key, as in `Authorization: Bearer KEY`",
             .code = "invalid_api_key"};
  } else if (request.method == "POST" && !request.get_header_value("Content-Type").starts_with("application/json")) {
    error = {.status = 415, .message = "the body must be JSON, and say so: `Content-Type: application/json`"};
  } else if (request.has_header("Content-Encoding")) {
    error = {.status = 415, .message = "compressed bodies are not read: send it without `Content-Encoding`"};
  }
  if (!error) return httplib::Server::HandlerResponse::Unhandled;
  reply(response, *error);
  HttpServer::close_after(response);
  return httplib::Server::HandlerResponse::Handled;
}

void Api::answer(Endpoint endpoint, const httplib::Request& http, httplib::Response& response) {
  auto request = read(endpoint, http.body);
  if (!request) return reply(response, request.error());
  auto submitted = loop_.submit(std::move(request->request), request->stream);
  if (!submitted) {
    if (submitted.error().code == ErrorCode::kBusy) {
      response.set_header("Retry-After", std::to_string(loop_.retry_after_s()));
    }
    return reply(response, refusal(submitted.error()));
  }
  if (request->stream) {
    answer_stream(head_of(endpoint), std::move(*submitted), request->include_usage, response);
  } else {
    answer_whole(head_of(endpoint), std::move(*submitted), response);
  }
}

// The body, with its prompt as segments.
ApiResult<AnswerRequest> Api::read(Endpoint endpoint, const std::string& body) const {
  auto request = parse_answer_request(
      endpoint, body, {.max_tokens = options_.max_tokens, .seed = random_number(), .budget = options_.budget});
  if (!request) return request;
  if (!request->model.empty() && request->model != options_.model_name) {
    return std::unexpected(
        ApiError{.status = 404,
                 .message = fmt::format("model {} is not served here, {} is", request->model, options_.model_name),
                 .param = "model",
                 .code = "model_not_found"});
  }
  auto segments = prompt_of(*request);
  if (!segments) return std::unexpected(std::move(segments).error());
  const char* prompt = endpoint == Endpoint::kChat ? "messages" : "prompt";
  std::size_t tokens = 0;
  for (const Segment& segment : *segments) tokens += segment.tokens.size();
  if (tokens >= model_.context_max) {
    return std::unexpected(ApiError{
        .message = fmt::format("the prompt has {} tokens and the model's context holds {}, the answer included", tokens,
                               model_.context_max),
        .param = prompt,
        .code = "context_length_exceeded"});
  }
  if (request->request.demand.named() && !segments->front().store) {
    return std::unexpected(ApiError{
        .message = "a method is applied to what comes before the question, and there is nothing: give a chat a system "
                   "message or earlier turns, a completion a `context`",
        .param = "method"});
  }
  request->request.segments = std::move(*segments);
  return request;
}

ApiResult<std::vector<Segment>> Api::prompt_of(AnswerRequest& request) const {
  if (request.endpoint == Endpoint::kChat) {
    said_.recall(request.messages);
    auto segments = chat_prompt(tokenizer_, request.messages);
    if (segments) return std::move(*segments);
    ApiError error = refusal(segments.error());
    error.param = "messages";
    return std::unexpected(std::move(error));
  }
  std::vector<Segment> segments;
  if (!request.context.empty()) segments.push_back({tokenizer_.tokenize(request.context, true), true, "context"});
  const bool whole = !request.prompt_tokens.empty() && segments.empty();
  segments.push_back({completion_prompt(tokenizer_, request), false, "completion"});
  std::vector<Token>& first = segments.front().tokens;
  if (!whole && tokenizer_.adds_bos() && first.front() != tokenizer_.bos()) {
    first.insert(first.begin(), tokenizer_.bos());
  }
  return segments;
}

AnswerHead Api::head_of(Endpoint endpoint) {
  const char* prefix = endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl";
  return {.endpoint = endpoint,
          .id = fmt::format("{}-{:016x}{:08x}", prefix, process_, answers_++),
          .model = options_.model_name,
          .fingerprint = "fp_" + model_.checkpoint.hex().substr(0, 16),
          .created = unix_time()};
}

// Gives up when the client does: the answer's end cancels the request.
void Api::answer_whole(const AnswerHead& head, Answer answer, httplib::Response& response) {
  std::optional<Channel::Part> part;
  while (!(part = answer.next(kLook))) {
    if (HttpServer::client_gone()) return HttpServer::close_after(response);
  }
  const Response& end = *part->response;
  if (end.error) return reply(response, failure(*end.error));
  if (end.stop == StopReason::kCancelled) return reply(response, cancelled());
  said(head, end);
  reply(response, answer_json(head, end));
}

void Api::answer_stream(AnswerHead head, Answer answer, bool include_usage, httplib::Response& response) {
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider(
      "text/event-stream",
      [stream = std::make_shared<Stream>(*this, std::move(head), std::move(answer), include_usage)](
          std::size_t, httplib::DataSink& sink) { return stream->send(sink); });
}

void Api::said(const AnswerHead& head, const Response& response) {
  if (head.endpoint == Endpoint::kChat) said_.add(spoken(response));
}

void Api::models(httplib::Response& response) const {
  reply(response, Json{{"object", "list"}, {"data", Json::array({model_json()})}});
}

void Api::model(const std::string& name, httplib::Response& response) const {
  if (name != options_.model_name) {
    return reply(response, ApiError{.status = 404,
                                    .message = fmt::format("model {} is not served here", name),
                                    .param = "model",
                                    .code = "model_not_found"});
  }
  reply(response, model_json());
}

Json Api::model_json() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "shale"},
          {"max_model_len", model_.context_max}};
}

}  // namespace shale
