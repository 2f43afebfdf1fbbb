// Answers that clients will send back as history, with the tokens that they were drawn as.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "core/lru_map.h"
#include "engine/chat_prompt.h"

namespace shale {

// A client knows only the text of an answer; tokenised anew it may come to other tokens, and the cache would not know
// the turn again. The latest answers are kept, up to `text_bytes_max` together; older ones are tokenised. Answers to
// requests of a salt are known to those of the same salt alone. Thread-safe.
class AnswerTokenCache {
 public:
  explicit AnswerTokenCache(std::size_t text_bytes_max) : text_bytes_max_(text_bytes_max) {}

  void add(ChatMessage answer, std::string_view salt = {});
  // Gives the messages of the assistant among these their tokens.
  void recall(std::span<ChatMessage> messages, std::string_view salt = {}) const;

 private:
  static std::string key_of(std::string_view salt, std::string_view text);

  const std::size_t text_bytes_max_;
  mutable std::mutex mutex_;
  std::size_t text_bytes_ = 0;
  LruMap<std::string, ChatMessage> answers_;  // by salt and text; touched when they are added
};

}  // namespace shale
