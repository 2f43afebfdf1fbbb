// Answers as OpenAI's API has them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/answer_request.h"
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

// The tokens used, the one that ended the answer included; `prompt_tokens_details` says beside `cached_tokens` how many
// were computed, where the others came from and whether any were lossy.
Json usage_json(const Response& response);
// The same as far as it is known while the answer is running.
Json usage_json(std::size_t prompt_tokens, std::size_t completion_tokens);

// The whole answer, for a response without an error.
Json answer_json(const AnswerHead& head, const Response& response);

// The prompt as the model will read it, for routers: as vLLM's GenerateRequest, with those of its fields that mean
// something here; of a completion a list of one.
Json render_json(const AnswerHead& head, const AnswerRequest& request);

// The parts of a stream: first the role (of chats alone), then text, then why it ended, then what was used.
Json role_chunk(const AnswerHead& head);
Json text_chunk(const AnswerHead& head, std::string_view text);
Json end_chunk(const AnswerHead& head, const Response& response);
Json usage_chunk(const AnswerHead& head, const Response& response);

// One event of a stream: "data: …\n\n".
std::string event(const Json& data);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

// As the other replies. Bytes that are not UTF-8, half a character at the end of an answer, say, become U+FFFD.
std::string dump(const Json& json);

}  // namespace shale
