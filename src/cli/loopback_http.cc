#include "cli/loopback_http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace shale {
namespace {

class Socket {
 public:
  Socket() : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (file_ >= 0) close(file_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int file() const { return file_; }

 private:
  int file_;
};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::unexpected<Error> fail_system(std::string_view what) {
  return fail(ErrorCode::kIo, "{}: {}", what, std::strerror(errno));
}

Status send_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return fail_system("cannot send to the peer");
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> receive_all(int file) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = recv(file, buffer, sizeof buffer, 0);
    if (got < 0) return fail_system("cannot receive from the peer");
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<std::string> loopback_request(std::uint16_t port, std::string_view method, std::string_view path,
                                     std::string_view body) {
  const Socket socket;
  const sockaddr_in address = loopback(port);
  if (connect(socket.file(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_system("cannot connect to the peer");
  }
  SHALE_TRY(send_all(socket.file(), fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                                                "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                                                method, path, body.size(), body)));
  SHALE_ASSIGN(std::string answer, receive_all(socket.file()));
  const std::size_t end_of_head = answer.find("\r\n\r\n");
  const std::string status = answer.substr(0, answer.find("\r\n"));
  if (end_of_head == std::string::npos || status.find(" 200 ") == std::string::npos) {
    return fail(ErrorCode::kIo, "the peer answered {} {} with '{}'", method, path, status);
  }
  return answer.substr(end_of_head + 4);
}

Result<std::uint16_t> free_loopback_port() {
  const Socket socket;
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (bind(socket.file(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail_system("cannot find a free port");
  }
  return ntohs(address.sin_port);
}

}  // namespace shale
