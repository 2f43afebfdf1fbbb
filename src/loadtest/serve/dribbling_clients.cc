#include "loadtest/serve/dribbling_clients.h"

#include <optional>
#include <string_view>

#include "io/io_threads.h"
#include "io/net_socket.h"
#include "loadtest/loopback_http.h"

namespace shale {
namespace {

constexpr double kLineEveryS = 1, kHealthEveryS = 0.1;
constexpr std::string_view kHead = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n";
constexpr std::string_view kLine = "X-Slow: yes\r\n";

class SlowConnection {
 public:
  // The next line, on a new connection where there is none any more.
  void go_on(std::uint16_t port) {
    if (socket_ && !open()) socket_.reset();
    if (!socket_) {
      auto begun = NetSocket::connect("127.0.0.1", port, nullptr);
      if (!begun) return;
      socket_.emplace(std::move(*begun));
      greeted_ = false;
    }
    const std::string_view text = greeted_ ? kLine : kHead;
    const iovec piece{const_cast<char*>(text.data()), text.size()};
    const auto sent = socket_->write(std::span(&piece, 1));
    if (!sent) return socket_.reset();
    greeted_ = greeted_ || *sent > 0;
  }

 private:
  // Reads what the server says, up to its closing.
  bool open() {
    std::byte bytes[1024];
    for (;;) {
      const auto read = socket_->read(bytes);
      if (!read || *read == 0) return read.has_value();
    }
  }

  std::optional<NetSocket> socket_;
  bool greeted_ = false;
};

}  // namespace

DribblingClients::DribblingClients(std::uint16_t port, std::size_t connections)
    : dribbles_([this, port, connections](const std::stop_token& stop) { dribble(port, connections, stop); }),
      asks_([this, port](const std::stop_token& stop) { ask(port, stop); }) {}

HealthAnswers DribblingClients::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

// All connect at once; their lines are spread over the second.
void DribblingClients::dribble(std::uint16_t port, std::size_t connections, const std::stop_token& stop) const {
  block_broken_pipes();
  std::vector<SlowConnection> all(connections);
  for (SlowConnection& each : all) each.go_on(port);
  for (std::size_t next = 0; !stop.stop_requested(); next = (next + 1) % connections) {
    clock_.sleep_until_s(clock_.now_s() + kLineEveryS / static_cast<double>(connections));
    all[next].go_on(port);
  }
}

void DribblingClients::ask(std::uint16_t port, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const double begun_s = clock_.now_s();
    const bool well = loopback_request(port, "GET", "/health", {}).has_value();
    const double now_s = clock_.now_s();
    {
      const std::lock_guard lock(mutex_);
      health_.failed += !well;
      health_.seconds.push_back(now_s - begun_s);
    }
    clock_.sleep_until_s(begun_s + kHealthEveryS);
  }
}

}  // namespace shale
