#include "loadtest/loopback_http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace shale {
namespace {

constexpr std::chrono::minutes kRequestMax(10);

// Binds `file` to a port that the system chooses; 0 where it refuses.
std::uint16_t bind_any(int file) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(file, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                     getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

Result<std::string> loopback_request(std::uint16_t port, std::string_view method, std::string_view path,
                                     std::string_view body) {
  httplib::Client client("127.0.0.1", port);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(kRequestMax);
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = body;
  request.set_header("Content-Type", "application/json");
  const httplib::Result answer = client.send(request);
  if (!answer) {
    return fail(ErrorCode::kIo, "no answer from the peer to {} {}: {}", method, path,
                httplib::to_string(answer.error()));
  }
  if (answer->status != 200) {
    return fail(ErrorCode::kIo, "the peer answered {} {} with {}", method, path, answer->status);
  }
  return answer->body;
}

Result<std::uint16_t> free_loopback_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::uint16_t port = file < 0 ? 0 : bind_any(file);
  const int error = errno;
  if (file >= 0) close(file);
  if (port == 0) return fail(ErrorCode::kIo, "cannot find a free port: {}", std::strerror(error));
  return port;
}

}  // namespace shale
