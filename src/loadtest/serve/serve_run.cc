#include "loadtest/serve/serve_run.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>

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
  // How many have ended since the last call.
  std::size_t reap() {
    return std::erase_if(clients_, [](const Client& client) { return client.done.load(); });
  }
  bool empty() const { return clients_.empty(); }

 private:
  struct Client {
    std::atomic<bool> done = false;
    std::jthread thread = {};
  };
  std::list<Client> clients_;
};

}  // namespace

Result<std::vector<ServedAnswer>> run_load(std::uint16_t port, std::span<const LoadRequest> load,
                                           const LoadHooks& hooks) {
  const RealClock clock;
  const double start_s = clock.now_s();
  std::vector<ServedAnswer> answers(load.size());
  Clients clients;
  std::size_t answered = 0;
  const auto look = [&] {
    answered += clients.reap();
    hooks.progress(answered);
    return check_interrupt();
  };
  Status going;
  for (std::size_t i = 0; i < load.size() && going; ++i) {
    std::string body = hooks.body(load[i]);
    const double at_s = start_s + load[i].at_s;
    for (double now_s = clock.now_s(); now_s < at_s && going; now_s = clock.now_s()) {
      clock.sleep_until_s(std::min(at_s, now_s + kLookS));
      going = look();
    }
    if (!going) break;
    clients.start([&answer = answers[i], &clock, port, at_s, body = std::move(body)] {
      answer = ask_server(port, body, clock, at_s, kAnswerMaxS);
    });
  }
  while (!clients.empty()) {
    if (!going) hooks.give_up();
    clock.sleep_until_s(clock.now_s() + kLookS);
    if (const Status more = look(); going) going = more;
  }
  SHALE_TRY(going);
  return answers;
}

}  // namespace shale
