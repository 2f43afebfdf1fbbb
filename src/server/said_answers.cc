#include "server/said_answers.h"

#include <utility>

namespace shale {

void SaidAnswers::add(ChatMessage answer) {
  if (answer.tokens.empty() || answer.content.empty()) return;
  const std::lock_guard lock(mutex_);
  if (const auto known = by_text_.find(answer.content); known != by_text_.end()) {
    const auto said = known->second;
    by_text_.erase(known);
    text_bytes_ -= said->content.size();
    answers_.erase(said);
  }
  text_bytes_ += answer.content.size();
  answers_.push_back(std::move(answer));
  by_text_.emplace(answers_.back().content, std::prev(answers_.end()));
  while (text_bytes_ > text_bytes_max_) {
    text_bytes_ -= answers_.front().content.size();
    by_text_.erase(answers_.front().content);
    answers_.pop_front();
  }
}

void SaidAnswers::recall(std::span<ChatMessage> messages) const {
  const std::lock_guard lock(mutex_);
  for (ChatMessage& message : messages) {
    const auto known = message.role == "assistant" ? by_text_.find(message.content) : by_text_.end();
    if (known != by_text_.end()) message = *known->second;
  }
}

}  // namespace shale
