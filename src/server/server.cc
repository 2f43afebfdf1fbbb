#include "server/server.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "server/api.h"
#include "server/http_server.h"

namespace shale {
namespace {

constexpr std::size_t kThreadsBesideRequests = 8;  // for health, metrics, refusals, and connections that are kept open

}  // namespace

struct Server::State {
  State(const ServerOptions& options, Engine& engine, const Clock& clock)
      : loop(options.loop, engine, clock),
        api(options.api, loop, engine.model().info(), engine.tokenizer()),
        http(engine.options().sequences_max + options.loop.queue_max + kThreadsBesideRequests) {
    api.add_to(http);
  }

  EngineLoop loop;
  Api api;
  HttpServer http;
  int port = 0;
  std::thread listener = {};
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Engine& engine, const Clock& clock) {
  auto state = std::make_unique<State>(options, engine, clock);
  HttpServer& http = state->http;
  if (options.port == 0) {
    state->port = http.bind_to_any_port(options.host);
  } else if (http.bind_to_port(options.host, options.port)) {
    state->port = options.port;
  }
  if (state->port <= 0) {
    return fail(ErrorCode::kIo, "cannot listen on {} port {}: is the port taken, the address this machine's own?",
                options.host, options.port);
  }
  state->listener = std::thread([&http] { http.listen_after_bind(); });
  while (!http.is_running()) std::this_thread::yield();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

std::uint16_t Server::port() const { return static_cast<std::uint16_t>(state_->port); }

void Server::stop(std::chrono::milliseconds grace) {
  state_->loop.stop(grace);
  state_->api.wait_for_streams();
  state_->http.stop();
  if (state_->listener.joinable()) state_->listener.join();
}

}  // namespace shale
