#include "io/net_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "core/clock.h"

namespace shale {
namespace {

// For so long an address that says nothing is waited for, where there are others.
constexpr double kPatienceWithAddressS = 0.3;

std::string tls_reason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = error ? ERR_reason_error_string(error) : nullptr;
  return reason ? reason : "the connection was closed";
}

bool is_address(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
}

// The certificate must be that of this host.
bool expect_host(SSL* ssl, const std::string& host) {
  if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  return SSL_set1_host(ssl, host.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

}  // namespace

void TlsContext::Free::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const std::string& ca_file) {
  auto tls = std::make_shared<TlsContext>();
  tls->context_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = tls->get();
  if (!context) return fail(ErrorCode::kIo, "no TLS: {}", tls_reason());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const bool trusts = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context) == 1
                                      : SSL_CTX_load_verify_file(context, ca_file.c_str()) == 1;
  if (!trusts) {
    return fail(ErrorCode::kInvalidArgument, "cannot read certificates from '{}': {}", ca_file, tls_reason());
  }
  return tls;
}

void NetSocket::Free::operator()(SSL* ssl) const { SSL_free(ssl); }
NetSocket::NetSocket(NetSocket&&) noexcept = default;
NetSocket& NetSocket::operator=(NetSocket&&) noexcept = default;
NetSocket::~NetSocket() = default;

NetSocket::Addresses NetSocket::look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    return fail(ErrorCode::kIo, "cannot find {}:{}: {}", host, port, gai_strerror(error));
  }
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    Address& address = addresses.emplace_back(Address{{}, each->ai_addrlen});
    std::memcpy(&address.address, each->ai_addr, each->ai_addrlen);
  }
  freeaddrinfo(found);
  return addresses;
}

NetSocket::NetSocket(const std::string& host, std::uint16_t port, const TlsContext* tls)
    : host_(host), where_(fmt::format("{}:{}", host, port)), port_(port), tls_(tls) {}

Result<NetSocket> NetSocket::connect(const std::string& host, std::uint16_t port, const TlsContext* tls) {
  if (is_address(host)) {
    SHALE_ASSIGN(auto addresses, look_up(host, port, AI_NUMERICHOST));
    return connect(host, port, std::move(addresses), tls);
  }
  NetSocket made(host, port, tls);
  SHALE_TRY(made.look_up_beside());
  return made;
}

Result<NetSocket> NetSocket::connect(const std::string& host, std::uint16_t port, std::vector<Address> addresses,
                                     const TlsContext* tls) {
  NetSocket made(host, port, tls);
  made.untried_ = std::move(addresses);
  SHALE_TRY(made.connect_to_next());
  return made;
}

// Servers of names take as long as they like, so this is left to a thread that nobody waits for.
Status NetSocket::look_up_beside() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::kIo, "no pipe: {}", std::strerror(errno));
  name_found_ = FileDescriptor(ends[0]);
  FileDescriptor end(ends[1]);
  std::promise<Addresses> promise;
  addresses_ = promise.get_future();
  try {
    std::thread([promise = std::move(promise), end = std::move(end), host = host_, port = port_]() mutable {
      promise.set_value(look_up(host, port, AI_ADDRCONFIG));
    }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kIo, "cannot look for {}: {}", where_, error.what());
  }
  return {};
}

Status NetSocket::connect_to_next(bool or_keep) {
  int error = EHOSTUNREACH;
  FileDescriptor next;
  while (!untried_.empty() && !next) {
    const Address to = untried_.front();
    untried_.erase(untried_.begin());
    FileDescriptor fd(socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
    const bool begun = fd && (::connect(fd.get(), address, to.length) == 0 || errno == EINPROGRESS);
    if (begun) next = std::move(fd);
    if (!begun) error = errno;
  }
  if (!next && or_keep) return {};
  if (!next) return fail(ErrorCode::kIo, "cannot connect to {}: {}", where_, std::strerror(error));
  fd_ = std::move(next);
  const int on = 1;
  (void)setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  wants_write_ = true;
  began_s_ = RealClock().now_s();
  return tls_ ? begin_tls() : Status();
}

Status NetSocket::begin_tls() {
  ssl_.reset(SSL_new(tls_->get()));
  if (!ssl_ || SSL_set_fd(ssl_.get(), fd_.get()) != 1 || !expect_host(ssl_.get(), host_)) {
    return fail(ErrorCode::kIo, "no TLS for {}: {}", where_, tls_reason());
  }
  SSL_set_connect_state(ssl_.get());
  return {};
}

Result<bool> NetSocket::connected() {
  if (connected_) return true;
  if (name_found_) {
    if (addresses_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    name_found_ = FileDescriptor();
    SHALE_ASSIGN(untried_, addresses_.get());
    SHALE_TRY(connect_to_next());
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0 && untried_.empty()) {
    return fail(ErrorCode::kIo, "cannot connect to {}: {}", where_, std::strerror(error));
  }
  sockaddr_storage peer;
  length = sizeof peer;
  connected_ = error == 0 && getpeername(fd(), reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  wants_write_ = !connected_;
  if (connected_ || untried_.empty()) return connected_;
  const bool silent = RealClock().now_s() >= began_s_ + kPatienceWithAddressS;
  if (error != 0 || silent) SHALE_TRY(connect_to_next(error == 0));
  return false;
}

bool NetSocket::waits_to_read() const {
  return ssl_ && connected_ && !wants_write_ && !SSL_is_init_finished(ssl_.get());
}

// SSL_read wants to write, and SSL_write to read, while hands are shaken.
Result<std::size_t> NetSocket::tls_result(int returned) {
  wants_write_ = false;
  if (returned > 0) return static_cast<std::size_t>(returned);
  const int error = SSL_get_error(ssl_.get(), returned);
  if (error == SSL_ERROR_WANT_READ) return 0;
  if (error == SSL_ERROR_WANT_WRITE) {
    wants_write_ = true;
    return 0;
  }
  if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
    return fail(ErrorCode::kIo, "{} does not prove who it is: {}", where_, X509_verify_cert_error_string(verified));
  }
  return fail(ErrorCode::kIo, "TLS with {}: {}", where_, tls_reason());
}

Result<std::size_t> NetSocket::read(std::span<std::byte> into) {
  SHALE_ASSIGN(const bool ready, connected());
  if (!ready) return 0;
  if (ssl_) {
    ERR_clear_error();
    return tls_result(SSL_read(ssl_.get(), into.data(), static_cast<int>(std::min<std::size_t>(into.size(), 1 << 30))));
  }
  const ssize_t bytes = recv(fd(), into.data(), into.size(), 0);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
  if (bytes == 0) return fail(ErrorCode::kIo, "{} closed the connection", where_);
  if (would_block()) return 0;
  return fail(ErrorCode::kIo, "cannot read from {}: {}", where_, std::strerror(errno));
}

Result<std::size_t> NetSocket::tls_write(std::span<const iovec> pieces) {
  std::size_t total = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    ERR_clear_error();
    const int length = static_cast<int>(std::min<std::size_t>(piece.iov_len, 1 << 30));
    SHALE_ASSIGN(const std::size_t bytes, tls_result(SSL_write(ssl_.get(), piece.iov_base, length)));
    total += bytes;
    if (bytes < piece.iov_len) break;
  }
  return total;
}

Result<std::size_t> NetSocket::write(std::span<const iovec> pieces) {
  SHALE_ASSIGN(const bool ready, connected());
  if (!ready) return 0;
  if (ssl_) return tls_write(pieces);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t bytes = sendmsg(fd(), &message, MSG_NOSIGNAL);
  if (bytes >= 0) return static_cast<std::size_t>(bytes);
  if (would_block()) return 0;
  return fail(ErrorCode::kIo, "cannot write to {}: {}", where_, std::strerror(errno));
}

}  // namespace shale
