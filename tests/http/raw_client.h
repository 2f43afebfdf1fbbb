// A client that sends any bytes, as slowly as it likes.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "support/loopback_address.h"

namespace shale::testing {

// Of this process's memory, in bytes: now, and at most so far.
inline std::size_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}
inline std::size_t resident_bytes() { return status_bytes("VmRSS"); }
inline std::size_t peak_bytes() { return status_bytes("VmHWM"); }

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback_address(port);
    open_ = ::connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  explicit RawClient(const std::string& path) : file_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    open_ = ::connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(RawClient&& other) noexcept : file_(std::exchange(other.file_, -1)), open_(other.open_) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() {
    if (file_ >= 0) ::close(file_);
  }

  bool open() const { return open_; }

  // False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  void end_sending() { shutdown(file_, SHUT_WR); }

  // What comes next; empty where the server has closed, or sends nothing for so long.
  std::string receive(std::chrono::milliseconds wait = std::chrono::seconds(20)) {
    pollfd wanted{.fd = file_, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, static_cast<int>(wait.count())) <= 0) return {};
    std::string bytes(65536, '\0');
    const ssize_t count = recv(file_, bytes.data(), bytes.size(), 0);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }
  // Up to and with `end`, or all until the server closes.
  std::string receive_until(std::string_view end) {
    std::string all;
    while (all.find(end) == std::string::npos) {
      const std::string bytes = receive();
      if (bytes.empty()) break;
      all += bytes;
    }
    return all;
  }
  std::string receive_all() {
    std::string all;
    for (std::string bytes; !(bytes = receive()).empty();) all += bytes;
    return all;
  }

 private:
  int file_;
  bool open_ = false;
};

}  // namespace shale::testing
