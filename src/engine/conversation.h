// A chat that goes on. What was said is never tokenised again, so that the cache finds every turn before, in this
// process or in a later one.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/chat_prompt.h"

namespace shale {

class Conversation {
 public:
  Conversation(const Tokenizer& tokenizer, std::string_view system);

  // The prompt of the next turn (chat_prompt). A message that is never answered, because it was refused, is no part of
  // the conversation: the next one takes its place.
  Result<std::vector<PrefixSpan>> ask(std::string_view message);
  // What the model said to the last `ask`.
  void answered(const Response& response);
  // Messages up to the last answer.
  std::span<const ChatMessage> messages() const { return messages_; }

 private:
  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> messages_;  // up to the last answer
  std::vector<ChatMessage> asked_;     // with the message that waits for its answer
};

}  // namespace shale
