#include "loadtest/serve/mix_clients.h"

#include <fmt/format.h>

#include <chrono>

namespace shale {
namespace {

constexpr std::chrono::minutes kPauseMax(1);
constexpr std::chrono::milliseconds kRetry(10);

}  // namespace

MixClients::MixClients(std::span<const MixPrompt> prompts, std::size_t clients, std::uint64_t seed, Hooks hooks)
    : prompts_(prompts), hooks_(std::move(hooks)) {
  for (std::size_t i = 0; i < clients; ++i) {
    threads_.emplace_back([this, seed = seed * 1000 + i](const std::stop_token& stop) { run(seed, stop); });
  }
}

MixClients::~MixClients() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void MixClients::open(std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  port_ = port;
  ++generation_;
  counts_.finished = 0;
  changed_.notify_all();
}

void MixClients::close() {
  const std::lock_guard lock(mutex_);
  port_ = 0;
  ++generation_;
}

bool MixClients::pause() {
  std::unique_lock lock(mutex_);
  paused_ = true;
  return changed_.wait_for(lock, kPauseMax, [this] { return counts_.in_flight == 0; });
}

void MixClients::resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}

MixCounts MixClients::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void MixClients::run(std::uint64_t seed, const std::stop_token& stop) {
  std::mt19937_64 random(seed);
  while (!stop.stop_requested()) {
    MixRequest request = draw_request(prompts_.size(), random);
    for (bool again = true; again; ++request.number) {  // what was stored under its salt before is not found again
      std::uint64_t generation = 0;
      const std::uint16_t port = begin(generation, stop);
      if (port == 0) return;
      const MixOutcome outcome = ask_mixed(port, request, prompts_[request.prompt]);
      again = end(request, outcome, generation);
      if (outcome.first_s > 0 && hooks_.on_first) hooks_.on_first(outcome.first_s);
      if (outcome.kind != MixOutcome::Kind::kAsMustBe) std::this_thread::sleep_for(kRetry);
    }
  }
}

std::uint16_t MixClients::begin(std::uint64_t& generation, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [this] { return port_ != 0 && !paused_; })) return 0;
  if (stop.stop_requested()) return 0;
  generation = generation_;
  ++counts_.begun;
  ++counts_.in_flight;
  return port_;
}

bool MixClients::end(const MixRequest& request, const MixOutcome& outcome, std::uint64_t generation) {
  using Kind = MixOutcome::Kind;
  std::unique_lock lock(mutex_);
  if (--counts_.in_flight == 0) changed_.notify_all();
  if (outcome.kind == Kind::kAsMustBe) {
    const bool finished = request.manner != Manner::kMalformed && request.manner != Manner::kIdle;
    ++counts_.answered;
    counts_.finished += finished && generation == generation_;
    counts_.cached_tokens += outcome.cached_tokens;
    return false;
  }
  if (outcome.kind != Kind::kWrong && generation != generation_) {
    ++counts_.sent_again;
    return true;
  }
  ++(outcome.kind == Kind::kWrong ? counts_.wrong : counts_.unanswered);
  lock.unlock();
  hooks_.on_failure(
      fmt::format("a request ({}, prompt {}): {}", to_string(request.manner), request.prompt, outcome.what));
  return false;
}

}  // namespace shale
