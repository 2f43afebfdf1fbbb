// cpp-httplib's server with what it lacks: a handler can ask whether its client is still there, and may leave a
// request's body unread.
#pragma once

#include <httplib.h>

#include <cstddef>

namespace shale {

class HttpServer final : public httplib::Server {
 public:
  explicit HttpServer(std::size_t threads);

  // For handlers, about the request that the calling thread serves.

  // Whether the client has closed its connection.
  static bool client_gone();
  // The connection ends with this answer; what the client still sends is not read as another request.
  static void close_after(httplib::Response& response);

 private:
  bool process_and_close_socket(socket_t socket) override;
};

}  // namespace shale
