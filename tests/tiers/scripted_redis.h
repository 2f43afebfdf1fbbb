// A server in this process that takes commands of Redis and answers as a test wants. One thread a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/resp.h"
#include "support/loopback_address.h"

namespace shale::testing {

class ScriptedRedis {
 public:
  // The arguments, with a space between two.
  using Answer = std::function<std::string(const std::string& command)>;

  // `answer` gives what is sent, "+OK\r\n"; it is called by one thread at a time.
  explicit ScriptedRedis(Answer answer) : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback_address();
    socklen_t size = sizeof address;
    (void)bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    (void)listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::jthread([this] { accept_all(); });
  }
  ~ScriptedRedis() {
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    threads_.clear();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }
  ScriptedRedis(const ScriptedRedis&) = delete;
  ScriptedRedis& operator=(const ScriptedRedis&) = delete;

  std::uint16_t port() const { return port_; }
  // All that came so far.
  std::vector<std::string> commands() const {
    const std::lock_guard lock(mutex_);
    return commands_;
  }

 private:
  void accept_all() {
    for (int connection = 0; (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }
  void serve(int connection) {
    RespParser parser;
    std::vector<std::byte> bytes(64 << 10);
    for (ssize_t count = 0; (count = recv(connection, bytes.data(), bytes.size(), 0)) > 0;) {
      std::span<const std::byte> in = std::span(bytes).first(static_cast<std::size_t>(count));
      while (!in.empty()) {
        const auto value = parser.take(in, {});
        if (!value) return;
        if (!*value) continue;
        const std::string reply = take(**value);
        (void)send(connection, reply.data(), reply.size(), MSG_NOSIGNAL);
      }
    }
  }
  std::string take(const RespValue& value) {
    std::string command;
    for (const RespValue& argument : value.items) command += (command.empty() ? "" : " ") + argument.text;
    const std::lock_guard lock(mutex_);
    commands_.push_back(command);
    return answer_(command);
  }

  const Answer answer_;
  const int listener_;
  std::uint16_t port_ = 0;
  std::vector<int> connections_;  // as the next, of the thread that accepts
  std::vector<std::jthread> threads_;
  mutable std::mutex mutex_;  // guards what follows, and answer_
  std::vector<std::string> commands_;
  std::jthread accepting_;
};

}  // namespace shale::testing
