#include "server/channel.h"

#include <algorithm>
#include <utility>

namespace shale {

Channel::Channel(std::size_t text_bytes_max, std::size_t choices, std::function<void()> on_news)
    : text_bytes_max_(text_bytes_max), on_news_(std::move(on_news)), choices_(choices) {}

void Channel::begin(Status taken) {
  {
    const std::lock_guard lock(mutex_);
    taken_ = std::move(taken);
  }
  tell();
}

void Channel::add_prompt(std::size_t choice, PromptLogprobs prompt) {
  const std::lock_guard lock(mutex_);
  choices_[choice].coming.prompt = std::move(prompt);
}

void Channel::add(std::size_t choice, DrawnToken token) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;
  auto& [coming, bytes] = choices_[choice];
  bytes += sizeof token + (token.logprobs ? token.logprobs->top.size() * sizeof token.logprobs->top[0] : 0);
  coming.tokens.push_back(std::move(token));
}

bool Channel::push(std::size_t choice, std::string_view piece) {
  {
    const std::lock_guard lock(mutex_);
    auto& [coming, token_bytes] = choices_[choice];
    if (coming.text.empty()) token_bytes = 0;  // of tokens that nobody was told of yet: the reader is not behind
    if (abandoned_ || coming.text.size() + piece.size() + token_bytes > text_bytes_max_) return false;
    coming.text += piece;
  }
  tell();
  return true;
}

void Channel::finish(std::size_t choice, Response response) {
  {
    const std::lock_guard lock(mutex_);
    choices_[choice].coming.response = std::move(response);
  }
  tell();
}

void Channel::tell() {
  came_.notify_one();
  if (on_news_) on_news_();
}

bool Channel::news() const {
  return taken_ || (begun_ && std::ranges::any_of(choices_, [](const Choice& each) { return each.coming.news(); }));
}

std::optional<Channel::Part> Channel::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, wait, [this] { return news(); })) return std::nullopt;
  if (const auto taken = std::exchange(taken_, std::nullopt)) {
    begun_ = taken->has_value();
    return begun_ ? Part() : Part{.refused = taken->error()};
  }
  while (!choices_[turn_].coming.news()) turn_ = (turn_ + 1) % choices_.size();
  const std::size_t choice = std::exchange(turn_, (turn_ + 1) % choices_.size());
  Part part = std::exchange(choices_[choice].coming, {});
  part.choice = choice;
  return part;
}

void Channel::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

}  // namespace shale
