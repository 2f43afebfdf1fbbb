#include "server/answer_source.h"

namespace shale {
namespace {

constexpr std::chrono::milliseconds kNow{0};

// What went wrong with a choice; nothing where it ended well.
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

AnswerSource::~AnswerSource() { log({.status = begun_ ? 200 : 499, .outcome = "gone"}); }

// Once; what ends it, with what is known of every request.
void AnswerSource::log(RequestEnd end) {
  if (std::exchange(logged_, true) || !notes_.log) return;
  end.id = head_.id;
  end.tenant = notes_.tenant;
  if (end.why.empty()) end.why = notes_.warning;
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_at_).count();
  notes_.log->add(end);
}

// Of all that ended well.
AnswerUsage AnswerSource::log_end() {
  std::vector<const Response*> responses;
  std::string outcome;
  for (const Choice& choice : choices_) {
    responses.push_back(&*choice.response);
    const std::string_view stop = to_string(responses.back()->stop);
    if (!outcome.contains(stop)) outcome.append(outcome.empty() ? "" : ",").append(stop);
  }
  const AnswerUsage usage = usage_of(responses, of_prompt_);
  log({.outcome = outcome, .usage = &usage});
  return usage;
}

// With what the choice used that ends it.
void AnswerSource::log_failure(int status, const ApiError& error, const Response& response) {
  const Response* const failed[] = {&response};
  const AnswerUsage usage = usage_of(failed);
  log({.status = status,
       .outcome = to_string(response.stop),
       .why = error.message,
       .usage = &usage,
       .failed = response.error.has_value()});
}

void AnswerSource::add_warning(HttpResponse& response) const {
  if (!notes_.warning.empty()) response.fields.emplace_back("Shale-Warning", notes_.warning);
}

std::optional<HttpSource::Part> AnswerSource::next() {
  if (!taken_) {
    const auto part = answer_.next(kNow);
    if (!part) return std::nullopt;
    if (part->refused) {
      const ApiError error = refusal(*part->refused);
      log({.status = error.status, .outcome = "refused", .why = error.message, .peer = notes_.peer});
      return Part{with_id(json_response(error), head_.id), true};
    }
    taken_ = true;
  }
  return stream_.on ? events() : whole();
}

// A choice that ended well.
void AnswerSource::end(Choice& choice, Response response) {
  if (head_.endpoint == Endpoint::kChat) answer_tokens_.add(spoken(response), notes_.salt);
  choice.response = std::move(response);
  ++ended_;
}

// Choices are told of as they end, one at a call: with log probabilities, each token takes kilobytes of a tree.
std::optional<HttpSource::Part> AnswerSource::whole() {
  auto part = answer_.next(kNow);
  if (!part) return std::nullopt;
  if (const auto error = error_of(*part->response)) {
    log_failure(error->status, *error, *part->response);
    return Part{with_id(json_response(*error), head_.id), true};
  }
  Choice& choice = choices_[part->choice];
  choice.json = told_whole(choice, *part);
  end(choice, std::move(*part->response));
  if (ended_ < choices_.size()) {
    wake_();  // others may have ended, too: other clients have their turns before
    return std::nullopt;
  }
  HttpResponse answer{.type = "application/json", .body = whole_body()};
  add_warning(answer);
  return Part{with_id(std::move(answer), head_.id), true};
}

// As JSON; what belongs beside the choices stays in `whole_`.
std::string AnswerSource::told_whole(Choice& choice, const Channel::Part& part) {
  whole_["choices"] = Json::array({choice_json(head_, part.choice, *part.response)});
  choice.teller.tell(whole_, part.tokens, part.prompt);
  std::string json = dump(whole_["choices"].front());
  whole_.erase("choices");
  return json;
}

std::string AnswerSource::whole_body() {
  std::string body = dump(whole_);
  body.back() = ',';  // where its brace was
  body += R"("choices":[)";
  for (Choice& choice : choices_) body.append(std::exchange(choice.json, {})).push_back(',');
  body.back() = ']';
  return body.append(R"(,"usage":)").append(dump(usage_json(log_end()))).append("}");
}

HttpResponse AnswerSource::stream_head() const {
  HttpResponse head{.type = "text/event-stream; charset=utf-8",
                    .fields = {{"Cache-Control", "no-cache"}, {"X-Request-Id", head_.id}}};
  add_warning(head);
  return head;
}

// The event of a part of the choice, `tokens` of which have come with it.
std::string AnswerSource::told(const Choice& choice, Json chunk, std::size_t tokens) const {
  if (stream_.running_usage) chunk["usage"] = usage_json(choice.prompt_tokens, tokens);
  return event(chunk);
}

std::string AnswerSource::events_of(Choice& choice, const Channel::Part& part) const {
  std::string out;
  // Not with the head, which goes out before anything is computed: clients take the first event for the first token.
  if (head_.endpoint == Endpoint::kChat && !std::exchange(choice.role_sent, true)) {
    Json role = role_chunk(head_, part.choice);
    choice.teller.tell_prompt(role);
    out += told(choice, std::move(role), 0);
  }
  const bool ended_well = part.response && !error_of(*part.response);
  if (!part.text.empty() || !part.tokens.empty() || (ended_well && choice.teller.owes_echo())) {
    Json text = text_chunk(head_, part.choice, part.text);
    choice.teller.tell(text, part.tokens, part.prompt);
    choice.tokens += part.tokens.size();
    out += told(choice, std::move(text), choice.tokens);
  }
  if (ended_well) out += told(choice, end_chunk(head_, part.choice, *part.response), part.response->drawn());
  return out;
}

std::optional<HttpSource::Part> AnswerSource::events() {
  const bool first = !std::exchange(begun_, true);
  Part result;
  if (first) result.response = stream_head();
  std::string& out = result.response.body;
  while (auto part = answer_.next(kNow)) {
    Choice& choice = choices_[part->choice];
    out += events_of(choice, *part);
    if (!part->response) continue;
    if (const auto error = error_of(*part->response)) {
      log_failure(200, *error, *part->response);
      out += event(to_json(*error));
      result.end = true;
      return result;
    }
    end(choice, std::move(*part->response));
  }
  result.end = ended_ == choices_.size();
  if (result.end) {
    const AnswerUsage usage = log_end();
    if (stream_.include_usage) out += event(usage_chunk(head_, usage));
    out += kStreamEnd;
  }
  return first || !out.empty() ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace shale
