#include "server/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shale {
namespace {

constexpr const char *kChatChunk = "chat.completion.chunk", *kCompletion = "text_completion";

const char* finish_reason(StopReason stop) {
  return stop == StopReason::kLength || stop == StopReason::kContextFull ? "length" : "stop";
}

// Choices within `head`; `object` of a chat and of a completion.
Json with_choices(const AnswerHead& head, const char* chat, const char* completion, Json choices) {
  return {{"id", head.id},
          {"object", head.endpoint == Endpoint::kChat ? chat : completion},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"choices", std::move(choices)}};
}

Json choice(std::size_t index, const char* key, Json content, Json reason) {
  return {{"index", index}, {key, std::move(content)}, {"logprobs", nullptr}, {"finish_reason", std::move(reason)}};
}

// With a part of one choice.
Json chunk(const AnswerHead& head, Json part) {
  return with_choices(head, kChatChunk, kCompletion, Json::array({std::move(part)}));
}

Json quality_json(std::optional<double> quality) { return quality ? Json(*quality) : Json(nullptr); }

// The lossy forms that served.
Json served_json(const AnswerUsage& usage) {
  Json served = Json::array();
  for (const SourceUsed& source : usage.compressed) {
    served.push_back({{"from", source.where},
                      {"tokens", source.tokens},
                      {"method", source.method.text()},
                      {"keep", source.keep},
                      {"expected_quality", quality_json(source.quality)}});
  }
  return served;
}

Json sampling_json(const AnswerRequest& request) {
  const Request& engine = request.request;
  const SamplingOptions& sampling = engine.sampling;
  Json params = {{"temperature", sampling.temperature},
                 {"top_p", sampling.top_p},
                 {"top_k", sampling.top_k},
                 {"min_p", sampling.min_p},
                 {"frequency_penalty", sampling.frequency_penalty},
                 {"presence_penalty", sampling.presence_penalty},
                 {"repetition_penalty", sampling.repetition_penalty},
                 {"max_tokens", engine.max_tokens ? Json(std::max(1U, *engine.max_tokens)) : Json(nullptr)},
                 {"stop", engine.stop},
                 {"stop_token_ids", engine.stop_tokens},
                 {"include_stop_str_in_output", engine.include_stop},
                 {"ignore_eos", engine.ignore_end}};
  if (request.n > 1) params["n"] = request.n;
  if (engine.logprobs) params["logprobs"] = *engine.logprobs;
  if (engine.prompt_logprobs) params["prompt_logprobs"] = *engine.prompt_logprobs;
  if (request.seed) params["seed"] = *request.seed;
  return params;
}

}  // namespace

Json usage_json(std::size_t prompt_tokens, std::size_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

Json usage_json(const AnswerUsage& usage) {
  Json from = Json::object();
  for (const auto& [name, tokens] : usage.cached.sources()) from[name] = tokens;
  Json json = usage_json(usage.prompt_tokens, usage.completion_tokens);
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached.total()},
                                   {"computed_tokens", usage.computed_tokens},
                                   {"cached_from", std::move(from)},
                                   {"lossy", usage.lossy},
                                   {"expected_quality", quality_json(usage.expected_quality)},
                                   {"quality_metric", usage.metric},
                                   {"compressed", served_json(usage)}};
  return json;
}

Json answer_json(const AnswerHead& head) { return with_choices(head, "chat.completion", kCompletion, Json::array()); }

Json choice_json(const AnswerHead& head, std::size_t index, const Response& response) {
  const char* reason = finish_reason(response.stop);
  if (head.endpoint == Endpoint::kCompletions) return choice(index, "text", response.text, reason);
  return choice(index, "message", {{"role", "assistant"}, {"content", response.text}, {"refusal", nullptr}}, reason);
}

Json render_json(const AnswerHead& head, const AnswerRequest& request) {
  const Json sampling = sampling_json(request);
  Json all = Json::array();
  for (const AnswerPrompt& prompt : request.prompts) {
    const bool alone = request.prompts.size() == 1;
    Json& rendered = all.emplace_back(Json{{"request_id", alone ? head.id : fmt::format("{}-{}", head.id, all.size())},
                                           {"model", head.model},
                                           {"token_ids", prompt.rendered()},
                                           {"sampling_params", sampling},
                                           {"stream", request.stream},
                                           {"priority", -request.request.priority}});
    if (!request.cache_salt.empty()) rendered["cache_salt"] = request.cache_salt;
  }
  if (request.endpoint == Endpoint::kChat) return std::move(all.front());
  return all;
}

Json role_chunk(const AnswerHead& head, std::size_t index) {
  return chunk(head, choice(index, "delta", {{"role", "assistant"}, {"content", ""}}, nullptr));
}

Json text_chunk(const AnswerHead& head, std::size_t index, std::string_view text) {
  return chunk(head, head.endpoint == Endpoint::kChat ? choice(index, "delta", {{"content", text}}, nullptr)
                                                      : choice(index, "text", text, nullptr));
}

Json end_chunk(const AnswerHead& head, std::size_t index, const Response& response) {
  const char* reason = finish_reason(response.stop);
  return chunk(head, head.endpoint == Endpoint::kChat ? choice(index, "delta", Json::object(), reason)
                                                      : choice(index, "text", "", reason));
}

Json usage_chunk(const AnswerHead& head, const AnswerUsage& usage) {
  Json json = with_choices(head, kChatChunk, kCompletion, Json::array());
  json["usage"] = usage_json(usage);
  return json;
}

std::string event(const Json& data) { return "data: " + dump(data) + "\n\n"; }

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace shale
