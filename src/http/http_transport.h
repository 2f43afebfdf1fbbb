// A client's socket, plain or encrypted.
#pragma once

#include <asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace asio::ssl {
class context;
}

namespace shale {

using HttpSocket = asio::generic::stream_protocol::socket;

// At most one handshake, read and write each at a time; their arguments must live until `done`, which the thread that
// runs the socket's loop calls. Destroying it closes the socket.
class HttpTransport {
 public:
  using Done = std::function<void(std::error_code, std::size_t bytes)>;

  virtual ~HttpTransport() = default;
  // First; a plain socket needs none and is done at once.
  virtual void handshake(Done done) = 0;
  // Some bytes.
  virtual void read(std::span<char> to, Done done) = 0;
  // All of them.
  virtual void write(std::string_view from, Done done) = 0;
  // Tells the client that nothing more comes; what it still sends can be read.
  virtual void end_writing() = 0;
  // Ends what is running with an error.
  virtual void close() = 0;
};

std::unique_ptr<HttpTransport> make_plain_transport(HttpSocket socket);
std::unique_ptr<HttpTransport> make_tls_transport(HttpSocket socket, asio::ssl::context& context);

}  // namespace shale
