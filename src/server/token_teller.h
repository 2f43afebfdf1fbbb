// What a client may ask to be told of an answer's tokens beside its text, as vLLM tells it: ids, and log probabilities.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "server/answer_request.h"

namespace shale {

// Of one answer, part by part. Tells nothing that was not asked for. Not thread-safe.
class TokenTeller {
 public:
  // `prompt`: its tokens, where ids are told. The tokenizer must outlive it.
  TokenTeller(Endpoint endpoint, TokenDetails details, std::vector<Token> prompt, const Tokenizer& tokenizer)
      : endpoint_(endpoint), details_(details), prompt_(std::move(prompt)), tokenizer_(tokenizer) {}

  // Adds to an answer, or to a part of one, what is told of the tokens that it brings, in their order.
  void tell(Json& answer, std::span<const DrawnToken> tokens);
  // Once: adds the prompt's ids, which belong to the first part.
  void tell_prompt(Json& answer);

 private:
  Json chat_logprobs(std::span<const DrawnToken> tokens) const;
  Json completion_logprobs(std::span<const DrawnToken> tokens);
  std::string name_of(Token token) const;

  const Endpoint endpoint_;
  const TokenDetails details_;
  std::vector<Token> prompt_;
  const Tokenizer& tokenizer_;
  std::size_t characters_ = 0;  // of the tokens told so far
};

}  // namespace shale
