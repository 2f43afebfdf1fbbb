// A chat as the prompt of a request: what was said before is cut where other requests begin with the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shale {

// One message. The model's own come with the tokens that it drew, which may differ from their text tokenised: only with
// them does the cache know the turn again.
struct ChatMessage {
  std::string role, content;
  std::vector<Token> tokens = {};  // of `content`; empty: it is tokenised, as where the template changes it
  bool last_uncomputed = false;    // the last of `tokens` was drawn and not computed, so that no pages hold it
};

// The model's answer as a message of the chat so far.
ChatMessage spoken(const Response& response);

// The prompt that asks for the next answer: a stored span for the system message, one for each turn up to the end of
// its answer, and last, not stored, what follows up to where the answer begins. Messages are rendered by the model's
// own template, or as paragraphs where it has none; control tokens are recognised in the template's text alone. What
// the template makes of a content is kept to: blanks or an answer's reasoning left out, JSON; otherwise contents are as
// they were sent. A span shorter than `span_tokens_min`, about a block, is not stored alone and begins the next one.
// kInvalidArgument with the template's own error.
Result<std::vector<PrefixSpan>> chat_prompt(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                            std::size_t span_tokens_min = 16);

}  // namespace shale
