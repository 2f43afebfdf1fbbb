#include "server/server.h"

#include <algorithm>
#include <utility>

#include "engine/chat_prompt.h"
#include "server/api.h"

namespace shale {
namespace {

// Computed, or found on a tier of an earlier process, and kept.
Status publish(Engine& engine, const std::string& system_message) {
  const std::vector<ChatMessage> chat = {{.role = "system", .content = system_message},
                                         {.role = "user", .content = "?"}};
  Request request;
  request.max_tokens = 1;
  SHALE_ASSIGN(request.spans, chat_prompt(engine.tokenizer(), chat));
  const std::vector<Token> prefix = request.spans.front().tokens;
  request.policy.exact = engine.cache().pool().shape().element == PageElement::kHalf;
  const Response response = engine.run(std::move(request));
  if (response.error) return std::unexpected(*response.error);
  while (engine.stores_any() && engine.run_once()) continue;
  Cache& cache = engine.cache();
  cache.drain(engine.model().executor());
  cache.store().pin(cache.keys_of(prefix));
  cache.publish(prefix);
  return {};
}

// Each tenant has places of its own: who fills them takes none of another's.
std::uint32_t queue_of_all(const ServerOptions& options, const EngineOptions& engine) {
  std::uint64_t waiting = options.loop.queue_max;  // the operator's
  for (const Tenant& tenant : options.api.tenants) waiting += places_of(tenant, options.api.tenant_requests);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(waiting, engine.waiting_max));
}

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
  std::unique_ptr<KvPublisher> publisher = {};
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& asked_for, Engine& engine, const Clock& clock) {
  ServerOptions options = asked_for;
  if (!options.api.tenants.empty()) {
    if (options.api.tenant_requests == 0) {
      options.api.tenant_requests = engine.options().sequences_max + options.loop.queue_max;
    }
    options.loop.queue_max = queue_of_all(options, engine.options());
  }
  for (const std::string& prefix : options.api.public_prefixes) {
    if (Status published = publish(engine, prefix); !published) return std::unexpected(published.error());
  }
  HttpOptions http = options.http;
  const std::uint32_t requests = engine.options().sequences_max + options.loop.queue_max;
  HttpLimits& limits = http.limits;  // all requests may come from one address: of a proxy, say
  limits.connections_per_address = std::max(limits.connections_per_address, requests + kConnectionsBesideRequests);
  limits.connections = std::max(limits.connections, limits.connections_per_address + kConnectionsBesideRequests);
  SHALE_ASSIGN(auto listening, HttpServer::listen(http));
  if (!listening->local() && options.api.api_key.empty() && options.api.tenants.empty() && !options.no_auth) {
    return fail(ErrorCode::kInvalidArgument,
                "others on the network could use a server at {}: give it a key with --api-key or --tenants, or let "
                "everybody in with --no-auth",
                http.host);
  }
  std::unique_ptr<KvPublisher> publisher;
  if (const auto& events = engine.cache().options().events; events && options.kv_events) {
    SHALE_ASSIGN(publisher, KvPublisher::start(*options.kv_events, *events, engine.cache().store()));
  }
  auto state = std::make_unique<State>(options, std::move(listening), engine, clock);
  state->publisher = std::move(publisher);
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

std::uint16_t Server::port() const { return state_->http->port(); }
const KvPublisher* Server::kv_publisher() const { return state_->publisher.get(); }

void Server::stop(std::chrono::milliseconds grace) {
  state_->loop.stop(grace);
  state_->http->stop();
}

}  // namespace shale
