// Answers as OpenAI's API has them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/answer_request.h"
#include "server/answer_usage.h"
#include "server/api_error.h"

namespace shale {

// What every part of one answer says alike.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kChat;
  std::string id;     // "chatcmpl-…", "cmpl-…"
  std::string model;  // as served
  std::string fingerprint;
  std::int64_t created = 0;  // Unix time
};

// The tokens used, those that ended choices included; `prompt_tokens_details` says beside `cached_tokens` how many were
// computed, where the others came from and whether any were lossy.
Json usage_json(const AnswerUsage& usage);
// The same of one choice, as far as it is known while that is running.
Json usage_json(std::size_t prompt_tokens, std::size_t completion_tokens);

// The whole answer, less its usage and its choices, which are added in their order.
Json answer_json(const AnswerHead& head);
// A whole choice, of a response without an error.
Json choice_json(const AnswerHead& head, std::size_t index, const Response& response);

// The prompt as the model will read it, for routers: as vLLM's GenerateRequest, with those of its fields that mean
// something here; of completions a list, with one for each prompt.
Json render_json(const AnswerHead& head, const AnswerRequest& request);

// The parts of a stream: of each choice first the role (of chats alone), then text, then why it ended; when all have,
// what was used.
Json role_chunk(const AnswerHead& head, std::size_t index);
Json text_chunk(const AnswerHead& head, std::size_t index, std::string_view text);
Json end_chunk(const AnswerHead& head, std::size_t index, const Response& response);
Json usage_chunk(const AnswerHead& head, const AnswerUsage& usage);

// One event of a stream: "data: …\n\n".
std::string event(const Json& data);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

// As the other replies. Bytes that are not UTF-8, half a character at the end of an answer, say, become U+FFFD.
std::string dump(const Json& json);

}  // namespace shale
