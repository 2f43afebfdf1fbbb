// An engine served over HTTP: OpenAI's API, /health and /metrics (docs/guides/serving.md).
//
//   Server ── owns ──> EngineLoop   the thread that calls the engine
//                  ──> Api          what requests mean
//                  ──> HttpServer   connections: a thread each while they are served
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "server/api.h"
#include "server/engine_loop.h"
#include "server/http_server.h"

namespace shale {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any that is free
  EngineLoopOptions loop;
  ApiOptions api;
};

class Server {
 public:
  // Serves when it returns. Until the server is stopped nobody else may call the engine; it and the clock must outlive
  // the server. kIo where the address cannot be bound.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Engine& engine, const Clock& clock);
  ~Server();  // stops without grace

  std::uint16_t port() const { return port_; }
  // Refuses new requests, answers those under way (EngineLoop::stop), and returns when every connection is closed.
  void stop(std::chrono::milliseconds grace);

 private:
  Server(ServerOptions options, Engine& engine, const Clock& clock);

  EngineLoop loop_;
  Api api_;
  HttpServer http_;
  std::uint16_t port_ = 0;
  std::thread listener_;
};

}  // namespace shale
