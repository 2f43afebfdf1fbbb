// A chat as tokens. What was said is never tokenised again: the next turn adds only the text that the model's template
// puts after it, so that the cache finds every turn before it, in this process or in a later one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace shale {

class Conversation {
 public:
  Conversation(const Tokenizer& tokenizer, std::string_view system);

  // The prompt of the next turn: one stored segment for each turn so far, then the new message up to where the answer
  // begins. kInvalidArgument with the template's own error.
  Result<std::vector<Segment>> ask(std::string_view message);
  // What the model said to the last `ask`.
  void answered(const Response& response);

  // Turns whose rendered text did not begin with what was there before (templates that rewrite the past, such as those
  // that drop earlier reasoning), and so were tokenised afresh.
  std::uint32_t rewritten() const { return rewritten_; }

 private:
  Result<std::string> render() const;
  std::vector<Token> tokenize(std::string_view rendered, std::string_view message, bool starts) const;

  const Tokenizer& tokenizer_;
  std::vector<Tokenizer::ChatMessage> messages_;
  std::string text_;                       // as rendered so far, answers included
  std::vector<std::vector<Token>> turns_;  // tokens of text_: prompt and answer of each turn
  std::uint32_t rewritten_ = 0;
};

}  // namespace shale
