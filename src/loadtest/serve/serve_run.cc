#include "loadtest/serve/serve_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/interrupt.h"

namespace shale {
namespace {

constexpr double kLookS = 0.05;       // between two looks at whether to go on
constexpr double kAnswerMaxS = 1800;  // that a server may take for the next byte of an answer

// Threads that have ended are joined while others run, so that a long load keeps no more than are running.
class Clients {
 public:
  template <class Work>
  void start(Work work) {
    Client& client = clients_.emplace_back();
    client.thread = std::jthread([&client, work = std::move(work)] {
      work();
      client.done = true;
    });
  }
  void reap() {
    std::erase_if(clients_, [](const Client& client) { return client.done.load(); });
  }
  bool empty() const { return clients_.empty(); }

 private:
  struct Client {
    std::atomic<bool> done = false;
    std::jthread thread = {};
  };
  std::list<Client> clients_;
};

class LoadRun {
 public:
  LoadRun(std::uint16_t port, std::vector<LoadRequest> load, const LoadHooks& hooks)
      : port_(port), hooks_(hooks), load_(std::move(load)), answers_(load_.size()) {}

  // Begins every chat at its time, and waits until all have ended.
  Status run() {
    Status going;
    for (std::size_t begin = 0, end = 0; begin < load_.size() && going; begin = end) {
      while (end < load_.size() && load_[end].chat == load_[begin].chat) ++end;
      std::string body = hooks_.body(std::span(load_).subspan(begin, 1), {});
      const double at_s = start_s_ + load_[begin].at_s;
      for (double now_s = clock_.now_s(); now_s < at_s && going; now_s = clock_.now_s()) {
        clock_.sleep_until_s(std::min(at_s, now_s + kLookS));
        going = look();
      }
      if (!going) break;
      clients_.start([this, begin, end, body = std::move(body)] { hold_chat(begin, end, body); });
    }
    while (!clients_.empty()) {
      if (!going) give_up();
      clock_.sleep_until_s(clock_.now_s() + kLookS);
      if (const Status more = look(); going) going = more;
    }
    return going;
  }

  ServedLoad served() {
    std::vector<std::size_t> asked;
    for (std::size_t i = 0; i < load_.size(); ++i) {
      if (answers_[i]) asked.push_back(i);
    }
    std::ranges::stable_sort(asked, {}, [this](std::size_t i) { return load_[i].at_s; });
    ServedLoad served;
    for (const std::size_t i : asked) {
      served.load.push_back(load_[i]);
      served.answers.push_back(std::move(*answers_[i]));
    }
    return served;
  }

 private:
  Status look() {
    clients_.reap();
    hooks_.progress(answered_);
    return check_interrupt();
  }

  void give_up() {
    {
      const std::lock_guard lock(mutex_);
      given_up_ = true;
    }
    pausing_.notify_all();
    hooks_.give_up();
  }

  // The chat is the requests from `begin` to `end`; `body` is the first one's, and it is time for that.
  void hold_chat(std::size_t begin, std::size_t end, std::string body) {
    std::vector<std::string> heard;
    for (std::size_t i = begin;; ++i) {
      const ServedAnswer& answer =
          answers_[i].emplace(ask_server(port_, body, clock_, start_s_ + load_[i].at_s, kAnswerMaxS));
      ++answered_;
      if (!answer.error.empty() || i + 1 == end) return;
      heard.push_back(answer.text);
      LoadRequest& next = load_[i + 1];
      next.at_s = load_[i].at_s + answer.end_s + next.pause_s;
      body = hooks_.body(std::span(load_).subspan(begin, i + 2 - begin), heard);
      if (!pause_until(start_s_ + next.at_s)) return;
    }
  }

  // Whether the chat is to go on then.
  bool pause_until(double time_s) {
    std::unique_lock lock(mutex_);
    const std::chrono::duration<double> left(time_s - clock_.now_s());
    return !pausing_.wait_for(lock, left, [this] { return given_up_; });
  }

  const std::uint16_t port_;
  const LoadHooks& hooks_;
  const RealClock clock_;
  const double start_s_ = clock_.now_s();
  std::vector<LoadRequest> load_;  // a chat's thread alone uses its part of it, and of the answers
  std::vector<std::optional<ServedAnswer>> answers_;
  std::atomic<std::size_t> answered_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable pausing_;
  bool given_up_ = false;
  Clients clients_;  // last: its threads use all of the above
};

}  // namespace

Result<ServedLoad> run_load(std::uint16_t port, std::vector<LoadRequest> load, const LoadHooks& hooks) {
  LoadRun run(port, std::move(load), hooks);
  SHALE_TRY(run.run());
  return run.served();
}

}  // namespace shale
