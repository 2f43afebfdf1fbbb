#include "http/http_transport.h"

#include <asio/buffer.hpp>
#include <asio/ssl.hpp>
#include <asio/write.hpp>
#include <utility>

namespace shale {
namespace {

template <class Stream>
class SocketTransport : public HttpTransport {
 public:
  template <class... Arguments>
  explicit SocketTransport(Arguments&&... arguments) : stream_(std::forward<Arguments>(arguments)...) {}

  void handshake(Done done) override { done({}, 0); }
  void read(std::span<char> to, Done done) override {
    stream_.async_read_some(asio::buffer(to.data(), to.size()), std::move(done));
  }
  void write(std::string_view from, Done done) override {
    asio::async_write(stream_, asio::buffer(from.data(), from.size()), std::move(done));
  }
  void end_writing() override {
    std::error_code ignored;
    stream_.lowest_layer().shutdown(asio::socket_base::shutdown_send, ignored);
  }
  void close() override {
    std::error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 protected:
  Stream stream_;
};

class TlsTransport final : public SocketTransport<asio::ssl::stream<HttpSocket>> {
 public:
  using SocketTransport::SocketTransport;

  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](std::error_code error) { done(error, 0); });
  }
};

}  // namespace

std::unique_ptr<HttpTransport> make_plain_transport(HttpSocket socket) {
  return std::make_unique<SocketTransport<HttpSocket>>(std::move(socket));
}

std::unique_ptr<HttpTransport> make_tls_transport(HttpSocket socket, asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

}  // namespace shale
