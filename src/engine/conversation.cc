#include "engine/conversation.h"

#include <utility>

namespace shale {

Conversation::Conversation(const Tokenizer& tokenizer, std::string_view system) : tokenizer_(tokenizer) {
  if (!system.empty()) said_.push_back({"system", std::string(system)});
}

Result<std::vector<PrefixSpan>> Conversation::ask(std::string_view message) {
  asked_ = said_;
  asked_.push_back({"user", std::string(message)});
  return chat_prompt(tokenizer_, asked_);
}

void Conversation::answered(const Response& response) {
  said_ = std::exchange(asked_, {});
  said_.push_back(spoken(response));
}

}  // namespace shale
