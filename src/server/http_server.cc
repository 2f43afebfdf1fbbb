#include "server/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace shale {
namespace {

constexpr int kKeepAliveMs = 5'000, kLingerMs = 200;
constexpr int kReadMs = 10'000, kWriteMs = 10'000;  // that a client may take for its next bytes

bool wait_for(int socket, short events, int milliseconds) {
  pollfd wanted{.fd = socket, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&wanted, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && (wanted.revents & events) != 0;
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

void address_of(int socket, GetName get_name, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (get_name(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  if (address.ss_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
    port = ntohs(four->sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
    port = ntohs(six->sin6_port);
  }
  ip = text;
}

class Connection final : public httplib::Stream {
 public:
  explicit Connection(int socket) : socket_(socket) {}

  bool is_readable() const override { return begin_ < end_ || wait_for(socket_, POLLIN, kReadMs); }
  bool is_writable() const override { return !gone() && wait_for(socket_, POLLOUT, kWriteMs); }
  ssize_t read(char* to, std::size_t size) override {
    if (begin_ == end_) {
      if (!is_readable()) return -1;
      const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    const std::size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, std::size_t size) override {
    return is_writable() ? send(socket_, from, size, MSG_NOSIGNAL) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { address_of(socket_, getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { address_of(socket_, getsockname, ip, port); }
  socket_t socket() const override { return socket_; }

  bool awaits_request(int milliseconds) const { return begin_ < end_ || wait_for(socket_, POLLIN, milliseconds); }
  bool gone() const {
    pollfd state{.fd = socket_, .events = POLLRDHUP, .revents = 0};
    return poll(&state, 1, 0) > 0;
  }

  bool close_after = false;

 private:
  const int socket_;
  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

thread_local Connection* served = nullptr;

// Says that nothing more comes, and reads on for a moment: closing at once with bytes unread would reset the
// connection before the client has read its answer.
void close_gently(int socket) {
  shutdown(socket, SHUT_WR);
  std::array<char, 4096> ignored;
  for (int reads = 0; reads < 256 && wait_for(socket, POLLIN, kLingerMs); ++reads) {
    if (recv(socket, ignored.data(), ignored.size(), 0) <= 0) break;
  }
  close(socket);
}

}  // namespace

HttpServer::HttpServer(std::size_t threads) {
  new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  // The library's own would let two servers share a port.
  set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  set_tcp_nodelay(true);
}

bool HttpServer::client_gone() { return served->gone(); }

void HttpServer::close_after(httplib::Response& response) {
  response.set_header("Connection", "close");
  served->close_after = true;
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket);
  served = &connection;
  bool well = true, closed = false;
  for (int waited_ms = 0; well && !closed && !connection.close_after && waited_ms < kKeepAliveMs;) {
    constexpr int kSliceMs = 100;  // between looks at whether the server still runs
    if (svr_sock_ == INVALID_SOCKET) break;
    if (!connection.awaits_request(kSliceMs)) {
      waited_ms += kSliceMs;
      continue;
    }
    waited_ms = 0;
    well = process_request(connection, false, closed, nullptr);
  }
  served = nullptr;
  close_gently(socket);
  return well;
}

}  // namespace shale
