#include "microbench/tcp_copy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/aligned_buffer.h"
#include "core/quantile.h"
#include "io/file_calls.h"

namespace shale::bench {
namespace {

constexpr std::uint32_t kLoneCopies = 16;  // of which the median is the latency

bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t received = recv(socket, bytes.data(), bytes.size(), 0);
    if (received <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(received));
  }
  return true;
}

// What the client wants next: so many blobs, of so many bytes, its way or the other.
struct Order {
  std::uint64_t blobs = 0, unit_bytes = 0;
  bool write = false;
};

std::span<std::byte> bytes_of(Order& order) { return std::as_writable_bytes(std::span(&order, 1)); }

// Serves until the client goes, and acknowledges blobs that it was sent by a byte each.
void serve_copies(const FileDescriptor& socket) {
  Order order;
  while (receive_all(socket.get(), bytes_of(order))) {
    AlignedBuffer buffer(order.unit_bytes);
    std::memset(buffer.data(), 1, buffer.size());
    for (std::uint64_t i = 0; i < order.blobs; ++i) {
      const bool goes_on =
          order.write ? receive_all(socket.get(), buffer.bytes()) && send_all(socket.get(), buffer.bytes().first(1))
                      : send_all(socket.get(), buffer.bytes());
      if (!goes_on) return;
    }
  }
}

// Both ends of a connection over the loopback interface.
Result<std::pair<FileDescriptor, FileDescriptor>> connect_to_self() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  const bool connected = bind(listener.get(), address, length) == 0 && listen(listener.get(), 1) == 0 &&
                         getsockname(listener.get(), address, &length) == 0 &&
                         connect(client.get(), address, length) == 0;
  FileDescriptor server(connected ? accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
  if (!server) return fail(ErrorCode::kIo, "no connection to this machine itself: {}", std::strerror(errno));
  const int on = 1;
  for (const int end : {client.get(), server.get()}) (void)setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::pair(std::move(client), std::move(server));
}

class Copier {
 public:
  Copier(const FileDescriptor& socket, std::uint64_t unit_bytes, std::uint64_t in_flight_bytes, const Clock& clock)
      : socket_(socket), unit_bytes_(unit_bytes), clock_(clock) {
    for (std::uint64_t bytes = 0; bytes == 0 || bytes + unit_bytes <= in_flight_bytes; bytes += unit_bytes) {
      buffers_.emplace_back(unit_bytes);
      std::memset(buffers_.back().data(), 2, unit_bytes);
    }
  }

  // Seconds of all.
  Result<double> seconds(bool write, std::uint64_t blobs) {
    Order order{blobs, unit_bytes_, write};
    const double start_s = clock_.now_s();
    bool good = send_all(socket_.get(), bytes_of(order));
    for (std::uint64_t i = 0; good && i < blobs; ++i) {
      const auto buffer = buffers_[i % buffers_.size()].bytes();
      good = write ? send_all(socket_.get(), buffer) : receive_all(socket_.get(), buffer);
    }
    std::vector<std::byte> told(write ? blobs : 0);
    good = good && receive_all(socket_.get(), told);
    if (!good) return fail(ErrorCode::kIo, "a connection to this machine itself broke");
    return clock_.now_s() - start_s;
  }
  // The median seconds of one alone.
  Result<double> alone(bool write) {
    std::vector<double> each(kLoneCopies);
    for (double& one : each) {
      SHALE_ASSIGN(one, seconds(write, 1));
    }
    return quantile(std::move(each), 0.5);
  }

 private:
  const FileDescriptor& socket_;
  const std::uint64_t unit_bytes_;
  const Clock& clock_;
  std::vector<AlignedBuffer> buffers_;
};

}  // namespace

Result<std::vector<TierIoRow>> measure_tcp_copy(std::size_t blobs, std::uint64_t unit_bytes,
                                                std::uint64_t in_flight_bytes, const Clock& clock) {
  SHALE_ASSIGN(auto ends, connect_to_self());
  const std::jthread server([end = std::move(ends.second)] { serve_copies(end); });
  const FileDescriptor client = std::move(ends.first);  // closed before the thread is waited for
  Copier copier(client, unit_bytes, in_flight_bytes, clock);
  std::vector<TierIoRow> rows;
  for (const bool write : {true, false}) {
    SHALE_ASSIGN(const double alone_s, copier.alone(write));
    SHALE_ASSIGN(const double seconds, copier.seconds(write, blobs));
    rows.push_back(
        {"tcp", unit_bytes, write ? "write" : "read", static_cast<double>(blobs * unit_bytes) / seconds, alone_s});
  }
  return rows;
}

}  // namespace shale::bench
