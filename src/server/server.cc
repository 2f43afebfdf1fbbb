#include "server/server.h"

#include <algorithm>
#include <utility>

#include "server/api.h"

namespace shale {
namespace {

// For health, metrics, refusals, and those that are kept open.
constexpr std::uint32_t kConnectionsBesideRequests = 256;

}  // namespace

struct Server::State {
  State(const ServerOptions& options, std::unique_ptr<HttpServer> listening, Engine& engine, const Clock& clock)
      : loop(options.loop, engine, clock),
        api(options.api, loop, engine.model().info(), engine.tokenizer()),
        http(std::move(listening)) {
    http->serve(api);
  }

  EngineLoop loop;
  Api api;
  std::unique_ptr<HttpServer> http;
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Engine& engine, const Clock& clock) {
  HttpOptions http = options.http;
  const std::uint32_t requests = engine.options().sequences_max + options.loop.queue_max;
  http.limits.connections = std::max(http.limits.connections, requests + kConnectionsBesideRequests);
  SHALE_ASSIGN(auto listening, HttpServer::listen(http));
  if (!listening->local() && options.api.api_key.empty() && options.api.tenants.empty() && !options.no_auth) {
    return fail(ErrorCode::kInvalidArgument,
                "others on the network could use a server at {}: give it a key with --api-key or --tenants, or let "
                "everybody in with --no-auth",
                http.host);
  }
  return std::unique_ptr<Server>(new Server(std::make_unique<State>(options, std::move(listening), engine, clock)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

std::uint16_t Server::port() const { return state_->http->port(); }

void Server::stop(std::chrono::milliseconds grace) {
  state_->loop.stop(grace);
  state_->http->stop();
}

}  // namespace shale
