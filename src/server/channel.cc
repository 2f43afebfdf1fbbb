#include "server/channel.h"

#include <utility>

namespace shale {

void Channel::begin(Status taken) {
  {
    const std::lock_guard lock(mutex_);
    taken_ = std::move(taken);
  }
  tell();
}

void Channel::add_prompt(PromptLogprobs prompt) {
  const std::lock_guard lock(mutex_);
  prompt_ = std::move(prompt);
}

void Channel::add(DrawnToken token) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;
  token_bytes_ += sizeof token + (token.logprobs ? token.logprobs->top.size() * sizeof token.logprobs->top[0] : 0);
  tokens_.push_back(std::move(token));
}

bool Channel::push(std::string_view piece) {
  {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) token_bytes_ = 0;  // of tokens that nobody was told of yet: the reader is not behind with them
    if (abandoned_ || text_.size() + piece.size() + token_bytes_ > text_bytes_max_) return false;
    text_ += piece;
  }
  tell();
  return true;
}

void Channel::finish(Response response) {
  {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
  }
  tell();
}

void Channel::tell() {
  came_.notify_one();
  if (on_news_) on_news_();
}

std::optional<Channel::Part> Channel::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, wait, [this] { return taken_ || !text_.empty() || response_; })) return std::nullopt;
  if (const auto taken = std::exchange(taken_, std::nullopt)) {
    return *taken ? Part() : Part{.refused = taken->error()};
  }
  return Part{.text = std::exchange(text_, {}),
              .prompt = std::exchange(prompt_, {}),
              .tokens = std::exchange(tokens_, {}),
              .response = std::exchange(response_, std::nullopt)};
}

void Channel::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

}  // namespace shale
