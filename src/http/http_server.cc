#include "http/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <filesystem>
#include <thread>
#include <utility>

#include "http/http_access.h"
#include "http/http_connection.h"
#include "http/http_hub.h"
#include "http/http_transport.h"
#include "http/tls_certificate.h"

namespace shale {
namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using SocketEndpoint = asio::generic::stream_protocol::endpoint;

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kPause(50);  // before trying again to accept when it failed
constexpr std::string_view kUnix = "unix:";
constexpr rlim_t kOtherFiles = 256;  // that a process needs beside its connections

// As many connections as there may be open files for; the process's limit is raised as far as it may.
std::uint32_t affordable(std::uint32_t connections) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return connections;
  const rlim_t wanted = connections + kOtherFiles;
  if (files.rlim_cur < wanted) {
    files.rlim_cur = std::min(wanted, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const rlim_t left = files.rlim_cur > 2 * kOtherFiles ? files.rlim_cur - kOtherFiles : files.rlim_cur / 2;
  return static_cast<std::uint32_t>(std::min<rlim_t>(connections, left));
}

Result<asio::ip::tcp::endpoint> resolve(asio::io_context& loop, const std::string& host, std::uint16_t port) {
  std::error_code error;
  asio::ip::tcp::resolver resolver(loop);
  const auto found = resolver.resolve(host, std::to_string(port), asio::ip::resolver_base::passive, error);
  if (error || found.empty()) {
    return fail(ErrorCode::kIo, "cannot listen on {}: {}", host, error ? error.message() : "it has no address");
  }
  const auto four = std::ranges::find_if(found, [](const auto& one) { return one.endpoint().address().is_v4(); });
  return four == found.end() ? found.begin()->endpoint() : four->endpoint();
}

// A socket's file that a process left behind is in the way; that of one that still listens is not touched.
void remove_stale(asio::io_context& loop, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_socket(path, error)) return;
  asio::local::stream_protocol::socket probe(loop);
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (error == asio::error::connection_refused) std::filesystem::remove(path, error);
}

}  // namespace

struct HttpServer::State {
  explicit State(const HttpOptions& options)
      : hub(options), on_note(options.on_note), acceptor(hub.loop), pause(hub.loop) {}

  Status bind(const HttpOptions& options);
  Status bind(const SocketEndpoint& endpoint, const std::string& where, const std::string& file);
  void accept();
  void accepted(std::error_code error, HttpSocket socket);
  std::unique_ptr<HttpTransport> transport(HttpSocket socket);

  HttpHub hub;
  std::function<void(const std::string&)> on_note;
  std::optional<TlsCertificate> tls;
  Acceptor acceptor;
  asio::steady_timer pause;
  std::string socket_file;  // of a Unix socket, once it is ours
  std::uint16_t port = 0;
  bool local = true;
  std::thread thread;
};

Status HttpServer::State::bind(const HttpOptions& options) {
  if (options.host.starts_with(kUnix)) {
    const std::string path = options.host.substr(kUnix.size());
    if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
      return fail(ErrorCode::kInvalidArgument, "a Unix socket's path has 1 to {} bytes, as in unix:/run/shale.sock",
                  sizeof(sockaddr_un::sun_path) - 1);
    }
    remove_stale(hub.loop, path);
    return bind(asio::local::stream_protocol::endpoint(path), options.host, path);
  }
  SHALE_ASSIGN(const auto endpoint, resolve(hub.loop, options.host, options.port));
  local = hub.refuses_foreign = endpoint.address().is_loopback();
  SHALE_TRY(bind(endpoint, fmt::format("{} port {}", options.host, options.port), {}));
  std::error_code error;
  const SocketEndpoint bound = acceptor.local_endpoint(error);
  port = ntohs(endpoint.address().is_v4() ? reinterpret_cast<const sockaddr_in*>(bound.data())->sin_port
                                          : reinterpret_cast<const sockaddr_in6*>(bound.data())->sin6_port);
  return {};
}

Status HttpServer::State::bind(const SocketEndpoint& endpoint, const std::string& where, const std::string& file) {
  std::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error && !file.empty()) {  // before it listens, so that nobody else gets in meanwhile
    socket_file = file;
    if (chmod(file.c_str(), 0600) != 0) error = std::error_code(errno, std::generic_category());
  }
  if (!error) acceptor.listen(kBacklog, error);
  if (!error) return {};
  return fail(ErrorCode::kIo, "cannot listen on {} ({}): is it taken, is the address this machine's own?", where,
              error.message());
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](std::error_code error, HttpSocket socket) { accepted(error, std::move(socket)); });
}

void HttpServer::State::accepted(std::error_code error, HttpSocket socket) {
  if (hub.finishing) return;
  if (error) {  // out of open files, say
    pause.expires_after(kPause);
    pause.async_wait([this](std::error_code cancelled) {
      if (!cancelled) accept();
    });
    return;
  }
  const SocketEndpoint peer = socket.remote_endpoint(error);
  std::string address = error ? std::string() : network_of(*peer.data());
  if (hub.admit(address)) {
    std::error_code ignored;  // a Unix socket has no such option
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    hub.add(std::make_shared<HttpConnection>(hub, transport(std::move(socket)), std::move(address)));
  }
  accept();
}

std::unique_ptr<HttpTransport> HttpServer::State::transport(HttpSocket socket) {
  if (!tls) return make_plain_transport(std::move(socket));
  const Status renewed = tls->refresh();
  if (!renewed && on_note) on_note(renewed.error().message + "; the one before stays in use");
  return make_tls_transport(std::move(socket), tls->context());
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options) {
  auto state = std::make_unique<State>(options);
  HttpLimits& limits = state->hub.limits;
  limits.connections = affordable(limits.connections);
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return fail(ErrorCode::kInvalidArgument, "TLS takes both a certificate and its key");
  }
  if (!options.tls_certificate.empty()) {
    SHALE_ASSIGN(state->tls, TlsCertificate::load(options.tls_certificate, options.tls_key));
  }
  SHALE_TRY(state->bind(options));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { stop(); }

std::uint16_t HttpServer::port() const { return state_->port; }

bool HttpServer::local() const { return state_->local; }

void HttpServer::serve(HttpService& service) {
  state_->hub.service = &service;
  state_->accept();
  state_->thread = std::thread([this] { state_->hub.loop.run(); });
}

void HttpServer::stop() {
  if (state_->thread.joinable()) {
    asio::post(state_->hub.loop, [state = state_.get()] {
      std::error_code ignored;
      state->acceptor.close(ignored);
      state->pause.cancel();
      state->hub.finish();
    });
    state_->thread.join();  // the loop ends when nothing is left to be done
  }
  if (!state_->socket_file.empty()) {
    std::error_code ignored;
    std::filesystem::remove(std::exchange(state_->socket_file, {}), ignored);
  }
}

}  // namespace shale
