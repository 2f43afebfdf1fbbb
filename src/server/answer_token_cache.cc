#include "server/answer_token_cache.h"

#include <fmt/format.h>

#include <utility>

namespace shale {

std::string AnswerTokenCache::key_of(std::string_view salt, std::string_view text) {
  return fmt::format("{}:{}{}", salt.size(), salt, text);
}

void AnswerTokenCache::add(ChatMessage answer, std::string_view salt) {
  if (answer.tokens.empty() || answer.content.empty()) return;
  std::string key = key_of(salt, answer.content);
  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    const auto entry = known->second;
    by_key_.erase(known);
    text_bytes_ -= entry->key.size();
    answers_.erase(entry);
  }
  text_bytes_ += key.size();
  answers_.push_back({std::move(key), std::move(answer)});
  by_key_.emplace(answers_.back().key, std::prev(answers_.end()));
  while (text_bytes_ > text_bytes_max_) {
    text_bytes_ -= answers_.front().key.size();
    by_key_.erase(answers_.front().key);
    answers_.pop_front();
  }
}

void AnswerTokenCache::recall(std::span<ChatMessage> messages, std::string_view salt) const {
  const std::lock_guard lock(mutex_);
  for (ChatMessage& message : messages) {
    if (message.role != "assistant") continue;
    const auto known = by_key_.find(key_of(salt, message.content));
    if (known != by_key_.end()) message = known->second->answer;
  }
}

}  // namespace shale
