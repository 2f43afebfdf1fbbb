#include "io/net_proxy.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "io/net_socket.h"

namespace shale {
namespace {

constexpr std::size_t kStreamBytes = 64 << 10;
constexpr int kServerBytesMax = 256 << 10;  // of a server's that wait for the proxy: the rest is to wait at the server
constexpr double kBurstS = 0.02;            // of a bound's bytes may be passed on at once
constexpr int kBoundedPollMs = 5;

void break_off(FileDescriptor& socket) {
  const linger at_once{1, 0};
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket = FileDescriptor();
}

}  // namespace

struct NetProxy::Address {
  sockaddr_storage address = {};
  socklen_t length = sizeof(sockaddr_storage);
};

// One direction of a connection.
struct NetProxy::Stream {
  int from = -1, to = -1;
  std::array<char, kStreamBytes> buffer;
  std::size_t begin = 0, end = 0;  // of what has come and not gone on
  bool ended = false;              // no more comes
};

struct NetProxy::Connection {
  FileDescriptor client, server;
  Stream up, down;
  bool answering = false;  // by the proxy
};

NetProxy::NetProxy() = default;

Result<std::unique_ptr<NetProxy>> NetProxy::start(const std::string& host, std::uint16_t port) {
  std::unique_ptr<NetProxy> proxy(new NetProxy);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    return fail(ErrorCode::kIo, "cannot find {}:{}: {}", host, port, gai_strerror(error));
  }
  proxy->server_ = std::make_unique<Address>();
  std::memcpy(&proxy->server_->address, found->ai_addr, found->ai_addrlen);
  proxy->server_->length = found->ai_addrlen;
  freeaddrinfo(found);

  proxy->listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  proxy->wake_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  if (bind(proxy->listener_.get(), address, length) != 0 || listen(proxy->listener_.get(), SOMAXCONN) != 0 ||
      getsockname(proxy->listener_.get(), address, &length) != 0) {
    return fail(ErrorCode::kIo, "no port for a proxy: {}", std::strerror(errno));
  }
  proxy->port_ = ntohs(own.sin_port);
  proxy->thread_ = std::jthread([self = proxy.get()] { self->run(); });
  return proxy;
}

NetProxy::~NetProxy() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  (void)eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void NetProxy::set(ProxyFault fault) {
  {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  (void)eventfd_write(wake_.get(), 1);
}

ProxyFault NetProxy::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void NetProxy::run() {
  const RealClock clock;
  double then_s = clock.now_s();
  for (;;) {
    ProxyFault fault = this->fault();
    const bool slow = fault.bytes_per_s > 0;
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    const bool may_move = !fault.hang && (!slow || allowance_bytes_ >= 1);
    for (const Connection& connection : open_) {
      if (!may_move) break;
      if (connection.answering || !fault.answer.empty()) {
        fds.push_back({connection.up.from, POLLIN, 0});
        continue;
      }
      for (const Stream* stream : {&connection.up, &connection.down}) {
        const bool full = stream->begin < stream->end;
        if (full) fds.push_back({stream->to, POLLOUT, 0});
        if (!full && !stream->ended) fds.push_back({stream->from, POLLIN, 0});
      }
    }
    (void)poll(fds.data(), fds.size(), slow && !fault.hang ? kBoundedPollMs : -1);
    eventfd_t count = 0;
    (void)eventfd_read(wake_.get(), &count);
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return open_.clear();
    }
    fault = this->fault();  // what came after it was set is not to be passed as before
    const double now_s = clock.now_s();
    allowance_bytes_ =
        std::min(allowance_bytes_ + fault.bytes_per_s * (now_s - then_s), std::max(1.0, fault.bytes_per_s * kBurstS));
    if (fault.bytes_per_s <= 0) allowance_bytes_ = std::numeric_limits<double>::infinity();
    then_s = now_s;
    if (fds[1].revents & POLLIN) accept_one(fault);
    if (fault.hang) continue;
    std::erase_if(open_, [&](Connection& connection) { return !pass(connection, fault); });
  }
}

void NetProxy::accept_one(const ProxyFault& fault) {
  FileDescriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client) return;
  if (fault.gone) return break_off(client);
  FileDescriptor server(socket(server_->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)setsockopt(server.get(), SOL_SOCKET, SO_RCVBUF, &kServerBytesMax, sizeof kServerBytesMax);
  const auto* address = reinterpret_cast<const sockaddr*>(&server_->address);
  const bool begun = server && (connect(server.get(), address, server_->length) == 0 || errno == EINPROGRESS);
  if (!begun) return break_off(client);
  const int on = 1;
  for (const int socket : {client.get(), server.get()}) {
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Connection& made = open_.emplace_back();
  made.up.from = made.down.to = client.get();
  made.up.to = made.down.from = server.get();
  made.client = std::move(client);
  made.server = std::move(server);
  ++connections_;
}

bool NetProxy::pass(Connection& connection, const ProxyFault& fault) {
  bool goes_on = !fault.gone;
  if (goes_on && (connection.answering || !fault.answer.empty())) goes_on = answer(connection, fault.answer);
  if (goes_on && !connection.answering) goes_on = move(connection.up) && move(connection.down);
  if (fault.gone) break_off(connection.client);
  return goes_on;
}

// Behind the answer whatever still comes is read, so that the answer is not lost with the connection.
bool NetProxy::answer(Connection& connection, const std::string& text) {
  Stream& up = connection.up;
  const bool was_answering = connection.answering;
  for (;;) {
    const ssize_t bytes = recv(up.from, up.buffer.data(), up.buffer.size(), 0);
    if (bytes == 0 || (bytes < 0 && !would_block())) return false;
    if (bytes < 0) break;
    connection.answering = true;
  }
  if (!connection.answering || was_answering) return true;
  (void)send(up.from, text.data(), text.size(), MSG_NOSIGNAL);
  return shutdown(up.from, SHUT_WR) == 0;
}

// What can be moved now; false where the connection is to end.
bool NetProxy::move(Stream& stream) {
  while (allowance_bytes_ >= 1) {
    if (stream.begin == stream.end && !stream.ended) {
      const auto most = static_cast<std::size_t>(std::min<double>(allowance_bytes_, kStreamBytes));
      const ssize_t bytes = recv(stream.from, stream.buffer.data(), most, 0);
      if (bytes < 0 && would_block()) return true;
      if (bytes < 0) return errno == ENOTCONN;  // the server has not been reached yet
      stream.begin = 0;
      stream.end = static_cast<std::size_t>(bytes);
      stream.ended = bytes == 0;
      if (stream.ended) (void)shutdown(stream.to, SHUT_WR);
    }
    if (stream.begin == stream.end) return !stream.ended;
    const ssize_t bytes = send(stream.to, stream.buffer.data() + stream.begin, stream.end - stream.begin, MSG_NOSIGNAL);
    if (bytes < 0 && would_block()) return true;
    if (bytes < 0) return errno == ENOTCONN;
    stream.begin += static_cast<std::size_t>(bytes);
    allowance_bytes_ -= static_cast<double>(bytes);
  }
  return true;
}

}  // namespace shale
