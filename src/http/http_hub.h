// What the connections of a server share: its loop, its limits, and the room that they have together.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "http/http_message.h"
#include "http/http_server.h"
#include "http/http_workers.h"

namespace shale {

class HttpConnection;

// Only the thread that runs the loop may use it, except for posting to the loop and adding jobs.
class HttpHub {
 public:
  explicit HttpHub(const HttpOptions& options);
  ~HttpHub();

  // Whether one more connection from this address may be. The one that has kept the server waiting longest is closed
  // for it.
  bool admit(const std::string& address);
  void add(std::shared_ptr<HttpConnection> connection);
  void remove(const HttpConnection& connection);
  // Bodies have grown or gone. Where they are too many bytes together, the one that has been coming longest is refused.
  void hold_bodies(std::ptrdiff_t bytes);
  // Much was freed: it is returned to the system, soon and once for all that is freed until then.
  void trim_soon();
  // Connections close as soon as they are answered, and at the latest after HttpLimits::finish.
  void finish();

  asio::io_context loop{1};
  HttpLimits limits;
  const std::vector<std::string> allowed_hosts;
  bool refuses_foreign = false;  // requests must say that they mean this machine (http_access.h)
  bool finishing = false;
  std::chrono::steady_clock::time_point finish_by = std::chrono::steady_clock::time_point::max();
  HttpService* service = nullptr;

 private:
  // The connection that has waited longest for its client to send or to go, of this address if there is one; null where
  // none waits.
  HttpConnection* longest_waiting(const std::string* address, bool with_body) const;

  std::list<std::shared_ptr<HttpConnection>> connections_;
  std::size_t bodies_bytes_ = 0;
  asio::steady_timer trim_timer_{loop};
  bool trims_soon_ = false;

 public:
  HttpWorkers workers;  // last: they end first
};

}  // namespace shale
