#include "server/answer_token_cache.h"

#include <fmt/format.h>

#include <utility>

namespace shale {

std::string AnswerTokenCache::key_of(std::string_view salt, std::string_view text) {
  return fmt::format("{}:{}{}", salt.size(), salt, text);
}

void AnswerTokenCache::add(ChatMessage answer, std::string_view salt) {
  if (answer.tokens.empty() || answer.content.empty()) return;
  const std::string key = key_of(salt, answer.content);
  const std::lock_guard lock(mutex_);
  if (!answers_.find(key)) text_bytes_ += key.size();
  answers_.touch(key) = std::move(answer);
  while (text_bytes_ > text_bytes_max_) {
    text_bytes_ -= answers_.oldest().first.size();
    answers_.erase_oldest();
  }
}

void AnswerTokenCache::recall(std::span<ChatMessage> messages, std::string_view salt) const {
  const std::lock_guard lock(mutex_);
  for (ChatMessage& message : messages) {
    if (message.role != "assistant") continue;
    if (const ChatMessage* const known = answers_.find(key_of(salt, message.content))) message = *known;
  }
}

}  // namespace shale
