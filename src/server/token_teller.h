// What a client may ask to be told beside an answer's text, as vLLM tells it: ids and log probabilities of its tokens
// and of the prompt's, and the prompt again.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/answer_request.h"

namespace shale {

// Of one choice, part by part. Tells nothing that was not asked for. Not thread-safe.
class TokenTeller {
 public:
  struct Prompt {
    std::vector<Token> tokens = {};  // where anything of it is told
    std::string text = {};           // where it is repeated
    bool bos_added = false;          // the first token is no part of the text
  };
  // The tokenizer must outlive it.
  TokenTeller(Endpoint endpoint, TokenDetails details, Prompt prompt, const Tokenizer& tokenizer)
      : endpoint_(endpoint),
        details_(details),
        prompt_(std::move(prompt)),
        tokenizer_(tokenizer),
        owes_ids_(details.ids && !prompt_.tokens.empty()),
        owes_echo_(details.echo) {}

  // Adds to an answer, or to a part of one, what is told of the tokens that its last choice brings, in their order.
  // `prompt`: of the first part, where log probabilities of the prompt are told.
  void tell(Json& answer, std::span<const DrawnToken> tokens, const PromptLogprobs& prompt = {});
  // Once: adds the prompt's ids, which belong to the first part.
  void tell_prompt(Json& answer);
  // Whether the prompt is still to be repeated, before any of the answer.
  bool owes_echo() const { return owes_echo_; }

 private:
  struct Rated {
    Token token = 0;
    const Logprobs* logprobs = nullptr;  // null: not known
    std::size_t characters = 0;          // of the text
  };
  Json chat_logprobs(std::span<const DrawnToken> tokens) const;
  Json completion_logprobs(std::span<const Rated> tokens);
  Json prompt_logprobs(const PromptLogprobs& prompt) const;
  std::string name_of(Token token) const;

  const Endpoint endpoint_;
  const TokenDetails details_;
  const Prompt prompt_;
  const Tokenizer& tokenizer_;
  bool owes_ids_, owes_echo_;
  std::size_t characters_ = 0;  // of the text, of the tokens told so far
};

}  // namespace shale
