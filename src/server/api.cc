#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/hash.h"
#include "core/parsing.h"
#include "core/random.h"
#include "server/answer_source.h"
#include "server/metrics_text.h"

namespace shale {
namespace {

constexpr std::string_view kModels = "/v1/models";
struct Route {
  std::string_view path;
  Endpoint endpoint;
  bool render = false;  // the prompt's tokens alone
};
constexpr Route kRoutes[] = {{"/v1/chat/completions", Endpoint::kChat},
                             {"/v1/completions", Endpoint::kCompletions},
                             {"/v1/chat/completions/render", Endpoint::kChat, true},
                             {"/v1/completions/render", Endpoint::kCompletions, true}};

const Route* route_of(std::string_view path) {
  const auto found = std::ranges::find(kRoutes, path, &Route::path);
  return found == std::end(kRoutes) ? nullptr : found;
}

std::int64_t unix_time() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

// Takes as long wherever the two differ.
bool same(std::string_view given, std::string_view wanted) {
  unsigned different = given.size() != wanted.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    different |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(wanted[i % wanted.size()]);
  }
  return different == 0;
}

// The key of `Authorization: Bearer KEY`; nothing of another scheme, whose name is read in either case (RFC
// 9110, 11.1).
std::optional<std::string_view> bearers_key(const HttpRequest& head) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = head.field("authorization");
  if (!same_ignoring_case(given.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  return trimmed(given.substr(kScheme.size()), kHttpSpace);
}

// What tells of each choice.
std::vector<AnswerSource::Choice> choices_of(const AnswerRequest& request, const Tokenizer& tokenizer) {
  const TokenDetails& details = request.details;
  std::vector<AnswerSource::Choice> choices;
  choices.reserve(request.choices());
  for (const AnswerPrompt& prompt : request.prompts) {
    TokenTeller::Prompt told{.bos_added = prompt.bos_added};
    if (details.of_prompt()) told.tokens = prompt.rendered();
    if (details.echo) told.text = request.context + prompt.text;
    for (std::uint32_t i = 0; i < request.n; ++i) {
      choices.push_back(
          {.teller = TokenTeller(request.endpoint, details, told, tokenizer), .prompt_tokens = prompt.length()});
    }
  }
  return choices;
}

// What the engine is to answer, choice by choice.
std::vector<Request> requests_of(AnswerRequest request) {
  std::vector<Request> requests;
  requests.reserve(request.choices());
  for (AnswerPrompt& prompt : request.prompts) {
    for (std::uint32_t left = request.n; left > 0; --left) {
      Request& choice = requests.emplace_back(request.request);
      choice.spans = left > 1 ? prompt.spans : std::move(prompt.spans);
      choice.sampling.seed = request.seed_of(requests.size() - 1);
      // Of a chat they are told once, beside the choices.
      if (request.endpoint == Endpoint::kChat && requests.size() > 1) choice.prompt_logprobs.reset();
    }
  }
  return requests;
}

ApiError too_many_of(std::string_view tenant) {
  return {.status = 429,
          .message = fmt::format("as many requests of tenant {} are running or waiting as it may have", tenant),
          .code = "rate_limit_exceeded"};
}

// Only JSON is read, and plain: a browser's page cannot send it to another origin unasked, and it is as long as it
// says.
std::optional<ApiError> check_body(const HttpRequest& head) {
  const std::string_view type = head.field("content-type");
  if (!same_ignoring_case(trimmed(type.substr(0, type.find(';')), kHttpSpace), "application/json")) {
    return ApiError{.status = 415, .message = "the body must be JSON, and say so: `Content-Type: application/json`"};
  }
  if (!head.field("content-encoding").empty()) {
    return ApiError{.status = 415, .message = "compressed bodies are not read: send it without `Content-Encoding`"};
  }
  return std::nullopt;
}

ApiError not_allowed(std::string_view methods) {
  return {.status = 405, .message = fmt::format("the method here is {}", methods), .allow = std::string(methods)};
}

}  // namespace

Api::Api(ApiOptions options, EngineLoop& loop, const ModelInfo& model, const Tokenizer& tokenizer)
    : options_(std::move(options)),
      loop_(loop),
      model_(model),
      tokenizer_(tokenizer),
      started_(unix_time()),
      tenants_(options_.tenants, options_.tenant_requests),
      process_(random_number()) {}

HttpResponse Api::refusal(const HttpFailure& failure) {
  return refused({.status = failure.status, .message = failure.message}, {new_id("req"), {}, failure.peer});
}

ApiResult<int> Api::tenant_of(const HttpRequest& head) const {
  const auto key = bearers_key(head);
  if (const int tenant = key && tenants_.any() ? tenants_.find(*key) : -1; tenant >= 0) return tenant;
  const bool open = options_.api_key.empty() && !tenants_.any();
  const bool operators = key && !options_.api_key.empty() && same(*key, options_.api_key);
  if (open || operators) return -1;
  return std::unexpected(ApiError{.status = 401,
                                  .message = "this server wants its key, as in `Authorization: Bearer KEY`",
                                  .code = "invalid_api_key"});
}

std::optional<HttpResponse> Api::answer_head(const HttpRequest& head) {
  const auto tenant = tenant_of(head);
  if (!tenant && head.path != "/health") return refused(tenant.error(), {new_id("req"), {}, head.peer});
  auto response = look_at(head, tenant.value_or(-1));
  if (response) return std::move(*response);
  return refused(response.error(), {new_id("req"), name_of(tenant.value_or(-1)), head.peer});
}

ApiResult<std::optional<HttpResponse>> Api::look_at(const HttpRequest& head, int tenant) const {
  if (tenant >= 0 && head.path == "/metrics") {
    return std::unexpected(
        ApiError{.status = 403, .message = "metrics tell of all tenants: they are for the bearer of --api-key"});
  }
  if (!route_of(head.path)) return get(head);
  if (head.method != "POST") return std::unexpected(not_allowed("POST"));
  if (auto error = check_body(head)) return std::unexpected(std::move(*error));
  return std::nullopt;
}

std::string_view Api::name_of(int tenant) const {
  return tenant >= 0 ? std::string_view(tenants_.at(tenant).name) : std::string_view();
}

ApiResult<HttpResponse> Api::get(const HttpRequest& head) const {
  const std::string_view path = head.path;
  const bool named = path.starts_with(kModels) && path.size() > kModels.size() + 1 && path[kModels.size()] == '/';
  if (path != "/health" && path != "/metrics" && path != kModels && !named) {
    const char* instead = path.starts_with("/v1/responses") ? ": this server has /v1/chat/completions" : "";
    return std::unexpected(
        ApiError{.status = 404, .message = fmt::format("there is no {} {}{}", head.method, path, instead)});
  }
  if (head.method != "GET" && head.method != "HEAD") return std::unexpected(not_allowed("GET, HEAD"));
  if (path == "/health") {
    return loop_.stopping() ? json_response(Json{{"status", "shutting down"}}, 503)
                            : json_response(Json{{"status", "ok"}});
  }
  if (path == kModels) return json_response(Json{{"object", "list"}, {"data", Json::array({model_json()})}});
  if (named) return model(path.substr(kModels.size() + 1));
  return HttpResponse{.type = std::string(kMetricsType), .body = metrics_text(metrics(), options_.model_name)};
}

ServerMetrics Api::metrics() const {
  ServerMetrics metrics = loop_.metrics();
  metrics.tenants = tenants_.metrics();
  for (TenantMetrics& tenant : metrics.tenants) {
    if (const auto served = metrics.served.find(tenant.name); served != metrics.served.end()) {
      tenant.served = served->second;
    }
    const auto stored = std::ranges::find(metrics.store.tenants, tenant.name, &StoreTenantStats::tenant);
    if (stored != metrics.store.tenants.end()) tenant.store = *stored;
  }
  return metrics;
}

HttpAnswer Api::answer(const HttpRequest& http, HttpWake wake) {
  const Route& route = *route_of(http.path);
  const int tenant = tenant_of(http).value_or(-1);
  AnswerHead head = head_of(route.endpoint);
  const Asked asked{head.id, name_of(tenant), http.peer};
  Tenants::Places places;
  const auto admitted = [&](std::size_t requests) {
    return tenant < 0 || route.render || tenants_.admit(tenant, requests, places);
  };
  if (!admitted(1)) return refused(too_many_of(asked.tenant), asked);  // before reading costs anything
  auto request = read(route.endpoint, http.body, tenant);
  if (!request) return refused(request.error(), asked);
  if (route.render) return with_id(json_response(render_json(head, *request)), head.id);
  if (!admitted(request->choices())) return refused(too_many_of(asked.tenant), asked);
  AnswerNotes notes{.warning = std::move(request->warning),
                    .tenant = std::string(asked.tenant),
                    .peer = http.peer,
                    .salt = request->request.policy.salt,
                    .log = options_.log};
  const AnswerSource::Stream stream{request->stream, request->include_usage, request->running_usage};
  std::vector<AnswerSource::Choice> choices = choices_of(*request, tokenizer_);
  Delivery delivery{stream.on, request->details.of_answer() || stream.running_usage, wake};
  const std::uint32_t of_prompt = request->n;
  auto answer = loop_.submit(requests_of(std::move(*request)), std::move(delivery), std::move(places));
  if (!answer) return refused(shale::refusal(answer.error()), asked);
  return std::make_unique<AnswerSource>(std::move(head), stream, std::move(choices), of_prompt, std::move(*answer),
                                        answer_tokens_, std::move(notes), std::move(wake));
}

HttpResponse Api::refused(const ApiError& error, const Asked& asked) const {
  if (options_.log) {
    options_.log->add({.id = asked.id,
                       .tenant = asked.tenant,
                       .status = error.status,
                       .outcome = "refused",
                       .why = error.message,
                       .peer = asked.peer});
  }
  HttpResponse response = with_id(json_response(error), asked.id);
  if (!error.allow.empty()) response.fields.emplace_back("Allow", error.allow);
  if (error.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429) response.fields.emplace_back("Retry-After", std::to_string(loop_.retry_after_s()));
  return response;
}

std::string Api::new_id(std::string_view prefix) {
  return fmt::format("{}-{}", prefix, Hasher().add(process_).add(ids_++).finish().hex().substr(0, 24));
}

AnswerHead Api::head_of(Endpoint endpoint) {
  return {.endpoint = endpoint,
          .id = new_id(endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl"),
          .model = options_.model_name,
          .fingerprint = "fp_" + model_.checkpoint.hex().substr(0, 16),
          .created = unix_time()};
}

ApiResult<HttpResponse> Api::model(std::string_view name) const {
  if (name != options_.model_name) {
    return std::unexpected(ApiError{.status = 404,
                                    .message = fmt::format("model {} is not served here", name),
                                    .param = "model",
                                    .code = "model_not_found"});
  }
  return json_response(model_json());
}

Json Api::model_json() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "shale"},
          {"max_model_len", model_.context_max}};
}

}  // namespace shale
