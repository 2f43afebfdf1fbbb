// What a client asks for, read from the body of its request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/engine.h"
#include "server/api_error.h"

namespace shale {

enum class Endpoint { kCompletions, kChat };

// What holds where a body says nothing.
struct AnswerDefaults {
  std::optional<std::uint32_t> max_tokens = {};  // of a chat's answer (Request); a completion has 16, as OpenAI's
  std::uint64_t seed = 0;
  std::optional<KvBudgetOptions> budget = {};  // not of requests that say `exact` or name a method
};

// What is told of tokens beside the answer's text. Log probabilities: with so many of the likeliest tokens.
struct TokenDetails {
  bool ids = false;                                   // of the prompt's tokens as well
  std::optional<std::uint32_t> logprobs = {};         // of the answer's; of a prompt that is repeated as well
  bool echo = false;                                  // the answer repeats the prompt (completions)
  std::optional<std::uint32_t> prompt_logprobs = {};  // by themselves, as vLLM has them
  bool of_answer() const { return ids || logprobs; }
  bool of_prompt() const { return ids || echo || prompt_logprobs; }
};

struct AnswerRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;  // empty: any
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own at the end of a stream
  bool running_usage = false;  // and in the others
  TokenDetails details;
  std::vector<ChatMessage> messages;  // of a chat
  std::string context;                // of a completion: text before the prompt that is stored as a span of its own
  std::string prompt;                 // of a completion; of one that is given as tokens where it is to be repeated
  std::vector<Token> prompt_tokens;   // instead of the text
  Request request;                    // all but its spans
  std::optional<std::int64_t> seed;   // where the client gave one, of the same bits as the request's
  std::string cache_salt;             // as the client gave it; empty: none
  std::string warning;                // for the client; empty: none
  bool bos_added = false;             // in front of the prompt, where the text has none

  std::vector<Token> rendered() const;  // the prompt of the request's spans
  std::uint32_t prompt_length() const;  // in tokens
};

// OpenAI's fields, and others (docs/guides/serving.md): of what may be lossy, of KV budgets, of sampling. Fields that
// are not known are ignored; known ones that ask for what this server cannot do are refused. Pure.
ApiResult<AnswerRequest> parse_answer_request(Endpoint endpoint, std::string_view body, const AnswerDefaults& defaults);

}  // namespace shale
