// Threads that ask a server one mixed request after another, while somebody else kills and starts it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "loadtest/serve/serve_mix.h"

namespace shale {

struct MixCounts {
  std::uint64_t begun = 0;       // requests, idle connections included
  std::uint64_t answered = 0;    // as they must be
  std::uint64_t sent_again = 0;  // the server went away under them
  std::uint64_t wrong = 0, unanswered = 0;
  std::uint64_t finished = 0;  // that the server that is open now has answered, or was left by
  std::uint32_t in_flight = 0;
  std::uint64_t cached_tokens = 0;
};

// Thread-safe. Nobody asks anything until `open`.
class MixClients {
 public:
  // `on_failure`: told what was expected and found; `on_first`: the seconds to each first text. Any thread calls them.
  struct Hooks {
    std::function<void(const std::string& what)> on_failure;
    std::function<void(double first_s)> on_first = {};
  };
  // `prompts` outlives this.
  MixClients(std::span<const MixPrompt> prompts, std::size_t clients, std::uint64_t seed, Hooks hooks);
  // Nobody begins anything; waits for those running.
  ~MixClients();

  void open(std::uint16_t port);
  // The server goes away: what breaks from now on is no failure and is sent again to the next one.
  void close();
  // Waits until nobody is running; false after a minute. Nobody begins anything before `resume`.
  bool pause();
  void resume();
  MixCounts counts() const;

 private:
  void run(std::uint64_t seed, const std::stop_token& stop);
  // The port, once there is one; 0 at the end. `generation`: of the server there.
  std::uint16_t begin(std::uint64_t& generation, const std::stop_token& stop);
  // Whether to send it again.
  bool end(const MixRequest& request, const MixOutcome& outcome, std::uint64_t generation);

  const std::span<const MixPrompt> prompts_;
  const Hooks hooks_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::uint16_t port_ = 0;
  std::uint64_t generation_ = 0;  // odd: open
  bool paused_ = false;
  MixCounts counts_;
  std::vector<std::jthread> threads_;
};

}  // namespace shale
