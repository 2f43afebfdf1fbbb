// A chat as tokens. What was said is never tokenised again: the next turn adds only the text that the model's template
// puts after it, so that the cache finds every turn before it, in this process or in a later one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace shale {

class Conversation {
 public:
  Conversation(const Tokenizer& tokenizer, std::string_view system);

  // The prompt of the next turn: one stored segment for each turn so far, then the new message up to where the answer
  // begins. Control tokens are recognised in the template's text alone. kInvalidArgument with the template's own error.
  Result<std::vector<Segment>> ask(std::string_view message);
  // What the model said to the last `ask`.
  void answered(const Response& response);

  // Turns before which the template rewrote what it had rendered, so that all was tokenised afresh.
  std::uint32_t rewritten() const { return rewritten_; }

 private:
  void add_message(const char* role, std::string_view content);
  Result<std::string> render() const;
  std::vector<Token> tokenize(std::string_view rendered, bool starts) const;

  const Tokenizer& tokenizer_;
  std::vector<Tokenizer::ChatMessage>
      messages_;  // contents replaced by markers, so that the template's text stands out
  std::vector<std::string> contents_;
  std::string text_;  // rendered so far, the last answer's marker included
  // The tokens of text_: of each turn what the engine stores as its entry, that is up to the last token that was
  // computed; then an answer's last token where it was drawn and not computed.
  std::vector<std::vector<Token>> turns_;
  std::vector<Token> carried_;
  std::uint32_t rewritten_ = 0;
};

}  // namespace shale
