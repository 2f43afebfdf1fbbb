// A proxy between clients and a server, on a port of 127.0.0.1: passes on what they say, and errs on demand, for seeing
// what becomes of a tier whose server or network is bad (`shale bench chaos --shared`). Bytes that it does not pass on
// wait at their sender, but for some hundred kilobytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "io/file_calls.h"

namespace shale {

struct ProxyFault {
  bool gone = false;        // every connection breaks
  bool hang = false;        // nothing is passed on
  double bytes_per_s = 0;   // of all connections together, either way; 0: no bound
  std::string answer = {};  // the proxy's own to whatever comes, in place of the server's; then the connection ends
};

// Thread-safe.
class NetProxy {
 public:
  // kIo. `host` is looked up at once.
  static Result<std::unique_ptr<NetProxy>> start(const std::string& host, std::uint16_t port);
  ~NetProxy();

  std::uint16_t port() const { return port_; }
  // Holds from now on, for what is on its way and what comes.
  void set(ProxyFault fault);
  // Connections that began so far.
  std::uint64_t connections() const { return connections_; }

 private:
  struct Stream;
  struct Connection;
  struct Address;
  NetProxy();
  void run();
  void accept_one(const ProxyFault& fault);
  // Whether the connection goes on.
  bool pass(Connection& connection, const ProxyFault& fault);
  bool answer(Connection& connection, const std::string& text);
  bool move(Stream& stream);
  ProxyFault fault() const;

  FileDescriptor listener_, wake_;
  std::unique_ptr<Address> server_;
  std::uint16_t port_ = 0;
  std::atomic<std::uint64_t> connections_ = 0;
  std::list<Connection> open_;  // as the next, of the thread alone
  double allowance_bytes_ = 0;  // that may be passed on now, where there is a bound
  mutable std::mutex mutex_;    // guards what follows
  ProxyFault fault_;
  bool closing_ = false;
  std::jthread thread_;
};

}  // namespace shale
