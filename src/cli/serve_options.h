// The options of `shale serve`, for it and for what starts it.
#pragma once

#include <optional>
#include <string>

#include "cli/answer_options.h"
#include "runtime/requests.h"
#include "runtime/serving.h"
#include "server/server.h"

namespace shale {

struct ServeOptions {
  ServingOptions serving;
  ServerOptions server;
  std::optional<std::string> api_key;        // empty: refused
  std::string tenants;                       // a file
  std::uint64_t tenant_bytes = 0;            // 0: no bound
  std::vector<std::string> public_prefixes;  // files
  KvBudgetChoice budget;
  std::string profile = "all";  // or "never", "drifted"
  QualityWatchOptions watch;
  double grace_s = 15, flush_timeout_s = 10;
  KvPublisherOptions kv_events;      // no endpoint: none are sent
  std::string kv_encoding = "maps";  // or "arrays"
  std::uint32_t kv_event_block = 0;  // tokens; 0: the pool's
  std::string log = "off";           // or "text", "json"
  std::string log_level = "info";    // or "warn", "error"
};

// All but --json and --progress.
void add_serve_options(Command command, ServeOptions& options);

}  // namespace shale
