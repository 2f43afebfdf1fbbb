#include "engine/conversation.h"

#include <utility>

namespace shale {

Conversation::Conversation(const Tokenizer& tokenizer, std::string_view system) : tokenizer_(tokenizer) {
  if (!system.empty()) messages_.push_back({"system", std::string(system)});
}

Result<std::vector<PrefixSpan>> Conversation::ask(std::string_view message) {
  asked_ = messages_;
  asked_.push_back({"user", std::string(message)});
  return chat_prompt(tokenizer_, asked_);
}

void Conversation::answered(const Response& response) {
  messages_ = std::exchange(asked_, {});
  messages_.push_back(spoken(response));
}

}  // namespace shale
