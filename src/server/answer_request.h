// What a client asks for, read from the body of its request.
#pragma once

#include <cstddef>
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

// One that is to be answered: of a chat the only one.
struct AnswerPrompt {
  std::string text = {};               // of a completion; of one that is given as tokens where it is to be repeated
  std::vector<Token> tokens = {};      // instead of the text
  std::vector<PrefixSpan> spans = {};  // as the engine gets it
  bool bos_added = false;              // in front of it, where the text has none

  std::vector<Token> rendered() const;  // of the spans
  std::uint32_t length() const;         // in tokens
};

struct AnswerRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;  // empty: any
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own at the end of a stream
  bool running_usage = false;  // and in the others
  TokenDetails details;
  std::vector<ChatMessage> messages;  // of a chat
  std::string context;                // of completions: text before each prompt that is stored as a span of its own
  std::vector<AnswerPrompt> prompts;  // at least one; their spans are not read from the body
  std::uint32_t n = 1;                // choices of each
  Request request;                    // of every choice, but its spans and its seed
  std::optional<std::int64_t> seed;   // where the client gave one, of the same bits as the request's
  std::string cache_salt;             // as the client gave it; empty: none
  std::string warning;                // for the client; empty: none

  std::size_t choices() const { return prompts.size() * n; }
  // Each choice is drawn by a seed of its own. Where the client gave one, that depends on nothing but which choice of
  // its prompt it is, as with vLLM.
  std::uint64_t seed_of(std::size_t choice) const { return request.sampling.seed + (seed ? choice % n : choice); }
};

// OpenAI's fields, and others (docs/guides/serving.md): of what may be lossy, of KV budgets, of sampling. Fields that
// are not known are ignored; known ones that ask for what this server cannot do are refused. Pure.
ApiResult<AnswerRequest> parse_answer_request(Endpoint endpoint, std::string_view body, const AnswerDefaults& defaults);

}  // namespace shale
