// A connection to a server, by TCP or by TLS over it, that never blocks.
#pragma once

#include <openssl/types.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/file_calls.h"

namespace shale {

// Whom connections trust. Shared by all of them.
class TlsContext {
 public:
  // `ca_file`: of certificates in PEM; empty: those that the system trusts. kInvalidArgument where it cannot be read.
  static Result<std::shared_ptr<const TlsContext>> make(const std::string& ca_file);
  SSL_CTX* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const;
  };
  std::unique_ptr<SSL_CTX, Free> context_;
};

// Whether a call on a socket that failed is to be made again, once something can be done.
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// One thread at a time, in which SIGPIPE is blocked.
class NetSocket {
 public:
  struct Address {
    sockaddr_storage address;
    socklen_t length;
  };

  // Begins to connect, to one address of the host after the other; with `tls`, the server must prove that it is `host`,
  // and `tls` outlives this. kIo.
  static Result<NetSocket> connect(const std::string& host, std::uint16_t port, const TlsContext* tls);
  // The same of a host whose addresses are known.
  static Result<NetSocket> connect(const std::string& host, std::uint16_t port, std::vector<Address> addresses,
                                   const TlsContext* tls);
  NetSocket(NetSocket&&) noexcept;
  NetSocket& operator=(NetSocket&&) noexcept;
  ~NetSocket();

  // The descriptor for poll(); another one while the host's name is looked up, and at each address.
  int fd() const { return name_found_ ? name_found_.get() : fd_.get(); }
  // Whether poll() must wait for room to write before going on, beside what the caller wants.
  bool wants_write() const { return wants_write_; }
  // Whether there is room, and nothing can be written all the same before something is read: TLS shakes hands.
  bool waits_to_read() const;
  // Whether another address is tried if this one says nothing for a while: then `read` or `write` is to be called again
  // soon, though poll() sees nothing.
  bool has_other_addresses() const { return !connected_ && !untried_.empty(); }

  // Moves what can be moved now: 0 where that is nothing. kIo where the connection failed, or the other side closed it.
  // What TLS did not write it may have taken all the same: the next call of `write` begins with the same bytes.
  Result<std::size_t> read(std::span<std::byte> into);
  Result<std::size_t> write(std::span<const iovec> pieces);

 private:
  struct Free {
    void operator()(SSL* ssl) const;
  };
  using Addresses = Result<std::vector<Address>>;

  NetSocket(const std::string& host, std::uint16_t port, const TlsContext* tls);
  static Addresses look_up(const std::string& host, std::uint16_t port, int flags);
  Status look_up_beside();
  Result<bool> connected();
  // Where it cannot be begun with any: an error or, if `or_keep`, goes on with the one that is tried.
  Status connect_to_next(bool or_keep = false);
  Status begin_tls();
  Result<std::size_t> tls_result(int returned);
  Result<std::size_t> tls_write(std::span<const iovec> pieces);

  FileDescriptor fd_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string host_, where_;
  std::uint16_t port_;
  const TlsContext* tls_;
  std::future<Addresses> addresses_;  // while they are looked up
  FileDescriptor name_found_;         // likewise: a pipe whose other end is closed when they are known
  std::vector<Address> untried_;      // the next one first
  double began_s_ = 0;                // with the address that is tried
  bool connected_ = false;
  bool wants_write_ = false;
};

}  // namespace shale
