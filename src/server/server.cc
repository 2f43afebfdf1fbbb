#include "server/server.h"

#include <fmt/format.h>

#include <utility>

namespace shale {
namespace {

constexpr std::size_t kThreadsBesideRequests = 8;  // for health, metrics, refusals, and connections that are kept open

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Engine& engine, const Clock& clock) {
  const std::string host = options.host;
  const std::uint16_t port = options.port;
  std::unique_ptr<Server> server(new Server(std::move(options), engine, clock));
  const int bound = port == 0                                ? server->http_.bind_to_any_port(host)
                    : server->http_.bind_to_port(host, port) ? port
                                                             : -1;
  if (bound <= 0) {
    return fail(ErrorCode::kIo, "cannot listen on {} port {}: is the port taken, the address this machine's own?", host,
                port);
  }
  server->port_ = static_cast<std::uint16_t>(bound);
  server->listener_ = std::thread([http = &server->http_] { http->listen_after_bind(); });
  while (!server->http_.is_running()) std::this_thread::yield();
  return server;
}

Server::Server(ServerOptions options, Engine& engine, const Clock& clock)
    : loop_(options.loop, engine, clock),
      api_(std::move(options.api), loop_, engine.model().info(), engine.tokenizer()),
      http_(engine.options().sequences_max + options.loop.queue_max + kThreadsBesideRequests) {
  api_.add_to(http_);
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::stop(std::chrono::milliseconds grace) {
  loop_.stop(grace);
  api_.wait_for_streams();
  http_.stop();
  if (listener_.joinable()) listener_.join();
}

}  // namespace shale
