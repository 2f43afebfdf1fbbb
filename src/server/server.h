// An engine served over HTTP: OpenAI's API, /health and /metrics (docs/guides/serving.md).
//
//   Server ── owns ──> EngineLoop   the thread that calls the engine
//                  ──> Api          what requests mean
//                  ──> HttpServer   connections (http_server.h)
//                  ──> KvPublisher  what lies where, for routers
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/http_server.h"
#include "server/engine_loop.h"
#include "server/kv_publisher.h"
#include "server/request_log.h"
#include "server/tenants.h"

namespace shale {

struct ApiOptions {
  std::string model_name = {};       // that requests ask for and answers name
  std::string api_key = {};          // that requests must bear, but for /health; empty: none
  std::vector<Tenant> tenants = {};  // each with a key of its own; `api_key` is the operator's then
  // Requests that one tenant may have running or waiting where its line does not say; 0: as many as the server decodes
  // together and as may wait, which each then has for itself.
  std::uint32_t tenant_requests = 0;
  bool shared_cache = false;  // tenants find what others left
  // System messages that are computed before the server listens: chats that begin so find them cached, whosever.
  std::vector<std::string> public_prefixes = {};
  std::shared_ptr<RequestLog> log = nullptr;     // null: none
  std::optional<std::uint32_t> max_tokens = {};  // of a chat's answer where its request says nothing (Request)
  std::optional<KvBudgetOptions> budget = {};    // of requests that do not say
};

struct ServerOptions {
  HttpOptions http = {};
  bool no_auth = false;  // others on the network may use a server without a key
  EngineLoopOptions loop = {};
  ApiOptions api = {};
  std::optional<KvPublisherOptions> kv_events = {};  // of a cache that is told them (CacheOptions)
};

class Server {
 public:
  // Serves when it returns. Until the server is stopped nobody else may call the engine; it and the clock must outlive
  // the server. kIo where the address cannot be bound, kInvalidArgument where others could reach a server without a
  // key; errors of the engine with public prefixes, and of KvPublisher.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, Engine& engine, const Clock& clock);
  ~Server();  // stops without grace

  std::uint16_t port() const;               // 0 of a Unix socket
  const KvPublisher* kv_publisher() const;  // null where there is none
  // Refuses new requests, answers those running (EngineLoop::stop), and returns when every connection is closed.
  void stop(std::chrono::milliseconds grace);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
