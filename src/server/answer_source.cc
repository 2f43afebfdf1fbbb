#include "server/answer_source.h"

#include <chrono>

namespace shale {
namespace {

// What went wrong with an answer running; nothing where it ended well.
std::optional<ApiError> error_of(const Response& response) {
  if (response.error) return failure(*response.error);
  if (response.stop != StopReason::kCancelled) return std::nullopt;
  return refusal({ErrorCode::kCancelled, "the server is shutting down"});
}

}  // namespace

HttpResponse json_response(const Json& json, int status) {
  return {.status = status, .type = "application/json", .body = dump(json)};
}

HttpResponse json_response(const ApiError& error) { return json_response(to_json(error), error.status); }

HttpResponse with_id(HttpResponse response, const std::string& id) {
  response.fields.emplace_back("X-Request-Id", id);
  return response;
}

AnswerSource::~AnswerSource() { log(stream_.on && begun_ ? 200 : 499, "gone", {}, nullptr); }

// Once.
void AnswerSource::log(int status, std::string_view outcome, std::string_view why, const Response* response) {
  if (std::exchange(logged_, true) || !notes_.log) return;
  notes_.log->add({.id = head_.id,
                   .tenant = notes_.tenant,
                   .status = status,
                   .outcome = outcome,
                   .why = why.empty() ? notes_.warning : why,
                   .response = response,
                   .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_at_).count(),
                   .peer = outcome == "refused" ? std::string_view(notes_.peer) : std::string_view()});
}

void AnswerSource::add_warning(HttpResponse& response) const {
  if (!notes_.warning.empty()) response.fields.emplace_back("Shale-Warning", notes_.warning);
}

std::optional<HttpSource::Part> AnswerSource::next() {
  while (const auto part = answer_.next(std::chrono::milliseconds(0))) {
    if (part->refused) {
      const ApiError error = refusal(*part->refused);
      log(error.status, "refused", error.message, nullptr);
      return Part{with_id(json_response(error), head_.id), true};
    }
    if (stream_.on) return events(*part);
    if (part->response) return Part{with_id(whole(*part), head_.id), true};
  }
  return std::nullopt;
}

void AnswerSource::keep_tokens(const Response& response) {
  if (head_.endpoint == Endpoint::kChat) answer_tokens_.add(spoken(response), notes_.salt);
}

HttpResponse AnswerSource::whole(const Channel::Part& part) {
  const Response& response = *part.response;
  if (const auto error = error_of(response)) {
    log(error->status, to_string(response.stop), error->message, &response);
    return json_response(*error);
  }
  log(200, to_string(response.stop), {}, &response);
  keep_tokens(response);
  Json json = answer_json(head_, response);
  teller_.tell(json, part.tokens, part.prompt);
  HttpResponse answer = json_response(json);
  add_warning(answer);
  return answer;
}

// The event of a part of the answer, `tokens` of which have come with it.
std::string AnswerSource::told(Json chunk, std::size_t tokens) const {
  if (stream_.prompt_tokens) chunk["usage"] = usage_json(*stream_.prompt_tokens, tokens);
  return event(chunk);
}

HttpSource::Part AnswerSource::events(const Channel::Part& part) {
  Part result;
  std::string& out = result.response.body;
  if (!std::exchange(begun_, true)) {
    result.response.type = "text/event-stream; charset=utf-8";
    result.response.fields = {{"Cache-Control", "no-cache"}, {"X-Request-Id", head_.id}};
    add_warning(result.response);
  }
  // Not with the head, which goes out before anything is computed: clients take the first event for the first token.
  const bool says = !part.text.empty() || part.response;
  if (head_.endpoint == Endpoint::kChat && says && !std::exchange(role_sent_, true)) {
    Json role = role_chunk(head_);
    teller_.tell_prompt(role);
    out += told(std::move(role), 0);
  }
  const bool ended_well = part.response && !error_of(*part.response);
  if (!part.text.empty() || !part.tokens.empty() || (ended_well && teller_.owes_echo())) {
    Json text = text_chunk(head_, part.text);
    teller_.tell(text, part.tokens, part.prompt);
    tokens_ += part.tokens.size();
    out += told(std::move(text), tokens_);
  }
  if (!part.response) return result;
  result.end = true;
  const Response& response = *part.response;
  if (const auto error = error_of(response)) {
    log(200, to_string(response.stop), error->message, &response);
    out += event(to_json(*error));
    return result;
  }
  log(200, to_string(response.stop), {}, &response);
  keep_tokens(response);
  out += told(end_chunk(head_, response), response.drawn());
  if (stream_.include_usage) out += event(usage_chunk(head_, response));
  out += kStreamEnd;
  return result;
}

}  // namespace shale
