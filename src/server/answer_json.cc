#include "server/answer_json.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

const char* finish_reason(StopReason stop) {
  return stop == StopReason::kLength || stop == StopReason::kContextFull ? "length" : "stop";
}

// One choice within `head`; `object` of a chat and of a completion.
Json with_choice(const AnswerHead& head, const char* chat, const char* completion, Json choices) {
  return {{"id", head.id},
          {"object", head.endpoint == Endpoint::kChat ? chat : completion},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"choices", std::move(choices)}};
}

Json choice(const char* key, Json content, Json reason) {
  return Json::array(
      {{{"index", 0}, {key, std::move(content)}, {"logprobs", nullptr}, {"finish_reason", std::move(reason)}}});
}

Json chunk(const AnswerHead& head, Json choices) {
  return with_choice(head, "chat.completion.chunk", "text_completion", std::move(choices));
}

Json quality_json(std::optional<double> quality) { return quality ? Json(*quality) : Json(nullptr); }

// The lossy forms that served.
Json served_json(const Response& response) {
  Json served = Json::array();
  for (const SourceUsed& source : response.sources) {
    if (!source.lossy()) continue;
    served.push_back({{"from", source.where},
                      {"tokens", source.tokens},
                      {"method", source.method.text()},
                      {"keep", source.keep},
                      {"expected_quality", quality_json(source.quality)}});
  }
  return served;
}

}  // namespace

Json usage_json(std::size_t prompt_tokens, std::size_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

Json usage_json(const Response& response) {
  Json from = Json::object();
  for (const auto& [name, tokens] : response.cached.sources()) from[name] = tokens;
  Json usage = usage_json(response.prompt_tokens, response.drawn());
  usage["prompt_tokens_details"] = {{"cached_tokens", response.cached.total()},
                                    {"computed_tokens", response.computed_tokens()},
                                    {"cached_from", std::move(from)},
                                    {"lossy", response.lossy},
                                    {"expected_quality", quality_json(response.expected_quality())},
                                    {"quality_metric", response.metric},
                                    {"compressed", served_json(response)}};
  return usage;
}

Json answer_json(const AnswerHead& head, const Response& response) {
  Json choices = head.endpoint == Endpoint::kChat
                     ? choice("message", {{"role", "assistant"}, {"content", response.text}, {"refusal", nullptr}},
                              finish_reason(response.stop))
                     : choice("text", response.text, finish_reason(response.stop));
  Json json = with_choice(head, "chat.completion", "text_completion", std::move(choices));
  json["usage"] = usage_json(response);
  return json;
}

Json render_json(const AnswerHead& head, const AnswerRequest& request) {
  const SamplingOptions& sampling = request.request.sampling;
  const std::optional<std::uint32_t>& max_tokens = request.request.max_tokens;
  Json rendered = {{"request_id", head.id},
                   {"model", head.model},
                   {"token_ids", request.rendered()},
                   {"sampling_params",
                    {{"temperature", sampling.temperature},
                     {"top_p", sampling.top_p},
                     {"top_k", sampling.top_k},
                     {"min_p", sampling.min_p},
                     {"frequency_penalty", sampling.frequency_penalty},
                     {"presence_penalty", sampling.presence_penalty},
                     {"repetition_penalty", sampling.repetition_penalty},
                     {"max_tokens", max_tokens ? Json(std::max(1U, *max_tokens)) : Json(nullptr)},
                     {"stop", request.request.stop},
                     {"stop_token_ids", request.request.stop_tokens},
                     {"include_stop_str_in_output", request.request.include_stop},
                     {"ignore_eos", request.request.ignore_end}}},
                   {"stream", request.stream},
                   {"priority", -request.request.priority}};
  if (request.request.logprobs) rendered["sampling_params"]["logprobs"] = *request.request.logprobs;
  if (request.request.prompt_logprobs) {
    rendered["sampling_params"]["prompt_logprobs"] = *request.request.prompt_logprobs;
  }
  if (request.seed) rendered["sampling_params"]["seed"] = *request.seed;
  if (!request.cache_salt.empty()) rendered["cache_salt"] = request.cache_salt;
  return request.endpoint == Endpoint::kCompletions ? Json::array({std::move(rendered)}) : rendered;
}

Json role_chunk(const AnswerHead& head) {
  return chunk(head, choice("delta", {{"role", "assistant"}, {"content", ""}}, nullptr));
}

Json text_chunk(const AnswerHead& head, std::string_view text) {
  return chunk(head, head.endpoint == Endpoint::kChat ? choice("delta", {{"content", text}}, nullptr)
                                                      : choice("text", text, nullptr));
}

Json end_chunk(const AnswerHead& head, const Response& response) {
  const char* reason = finish_reason(response.stop);
  return chunk(head,
               head.endpoint == Endpoint::kChat ? choice("delta", Json::object(), reason) : choice("text", "", reason));
}

Json usage_chunk(const AnswerHead& head, const Response& response) {
  Json json = chunk(head, Json::array());
  json["usage"] = usage_json(response);
  return json;
}

std::string event(const Json& data) { return "data: " + dump(data) + "\n\n"; }

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace shale
