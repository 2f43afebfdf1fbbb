// Connections that never come to the end of a request, to see what a server's other clients notice of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace shale {

// How long a server took to answer GET /health.
struct HealthAnswers {
  std::vector<double> seconds;
  std::size_t failed = 0;
};

// Runs two threads from its making to its end: one holds the connections open, sends a header line on each every second
// and connects again where the server has closed one; the other asks for /health ten times a second.
class DribblingClients {
 public:
  // A server at 127.0.0.1.
  DribblingClients(std::uint16_t port, std::size_t connections);
  // What has come so far. Thread-safe.
  HealthAnswers health() const;

 private:
  void dribble(std::uint16_t port, std::size_t connections, const std::stop_token& stop) const;
  void ask(std::uint16_t port, const std::stop_token& stop);

  const RealClock clock_;
  mutable std::mutex mutex_;
  HealthAnswers health_;
  std::jthread dribbles_, asks_;  // last: they end before what they use
};

}  // namespace shale
