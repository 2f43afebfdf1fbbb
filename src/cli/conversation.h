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
  // A message that is never answered, because it was refused, is no part of the conversation: the next one takes its
  // place.
  Result<std::vector<Segment>> ask(std::string_view message);
  // What the model said to the last `ask`.
  void answered(const Response& response);

  // Turns before which the template rewrote what it had rendered, so that all was tokenised afresh.
  std::uint32_t rewritten() const { return said_.rewritten; }

 private:
  struct Said {
    std::vector<Tokenizer::ChatMessage>
        messages;  // contents replaced by markers, so that the template's text stands out
    std::vector<std::string> contents;
    std::string text;  // rendered so far, the last answer's marker included
    // The tokens of `text`: of each turn what the engine stores as its entry, that is up to the last token that was
    // computed; then an answer's last token where it was drawn and not computed.
    std::vector<std::vector<Token>> turns;
    std::vector<Token> carried;
    std::uint32_t rewritten = 0;

    void add_message(const char* role, std::string_view content);
  };
  Result<std::string> render(const Said& said) const;
  std::vector<Token> tokenize(const Said& said, std::string_view rendered, bool starts) const;

  const Tokenizer& tokenizer_;
  Said said_;   // up to the last answer
  Said asked_;  // with the message that waits for its answer
};

}  // namespace shale
