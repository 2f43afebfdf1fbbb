#include "server/answer_source.h"

#include <chrono>

namespace shale {
namespace {

ApiError cancelled() { return refusal({ErrorCode::kCancelled, "the server is shutting down"}); }

}  // namespace

HttpResponse json_response(const Json& json, int status) {
  return {.status = status, .type = "application/json", .body = dump(json)};
}

HttpResponse json_response(const ApiError& error) { return json_response(to_json(error), error.status); }

std::optional<HttpSource::Part> AnswerSource::next() {
  while (const auto part = answer_.next(std::chrono::milliseconds(0))) {
    if (part->refused) return Part{json_response(refusal(*part->refused)), true};
    if (stream_.on) return events(*part);
    if (part->response) return Part{whole(*part->response), true};
  }
  return std::nullopt;
}

void AnswerSource::remember(const Response& response) {
  if (head_.endpoint == Endpoint::kChat) said_.add(spoken(response));
}

HttpResponse AnswerSource::whole(const Response& response) {
  if (response.error) return json_response(failure(*response.error));
  if (response.stop == StopReason::kCancelled) return json_response(cancelled());
  remember(response);
  return json_response(answer_json(head_, response));
}

HttpSource::Part AnswerSource::events(const Channel::Part& part) {
  Part result;
  std::string& out = result.response.body;
  if (!std::exchange(begun_, true)) {
    result.response.type = "text/event-stream";
    result.response.fields = {{"Cache-Control", "no-cache"}};
    if (head_.endpoint == Endpoint::kChat) out += event(role_chunk(head_));
  }
  if (!part.text.empty()) out += event(text_chunk(head_, part.text));
  if (!part.response) return result;
  result.end = true;
  const Response& response = *part.response;
  if (response.error || response.stop == StopReason::kCancelled) {
    out += event(to_json(response.error ? failure(*response.error) : cancelled()));
    return result;
  }
  remember(response);
  out += event(end_chunk(head_, response));
  if (stream_.include_usage) out += event(usage_chunk(head_, response));
  out += kStreamEnd;
  return result;
}

}  // namespace shale
