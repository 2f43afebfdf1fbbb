#include "cli/serve_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/answer_options.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"

namespace shale {
namespace {

void add_router_options(Command command, ServeOptions& options) {
  const char* group = "Routers";
  KvPublisherOptions& events = options.kv_events;
  Option on = command
                  .add_option("--kv-events", events.endpoint,
                              "Publish what lies in the pool and on private tiers, as vLLM's KV events, at this "
                              "address of ZeroMQ: tcp://HOST:PORT, HOST and PORT may be *. Everybody who can "
                              "connect reads the tokens of prompts")
                  .envname("SHALE_KV_EVENTS")
                  .type_name("ENDPOINT")
                  .group(group);
  command
      .add_option("--kv-events-replay", events.replay,
                  "Send what a subscriber missed again, at this address (default: not)")
      .envname("SHALE_KV_EVENTS_REPLAY")
      .type_name("ENDPOINT")
      .needs(on)
      .group(group);
  command
      .add_option("--kv-events-topic", events.topic,
                  "In front of every batch (default: empty); llm-d's: kv@IP:PORT@MODEL")
      .envname("SHALE_KV_EVENTS_TOPIC")
      .type_name("TEXT")
      .needs(on)
      .group(group);
  command
      .add_option("--kv-events-encoding", options.kv_encoding,
                  "How MessagePack holds an event: as maps, since vLLM 0.20 or so; as arrays, for older consumers")
      .envname("SHALE_KV_EVENTS_ENCODING")
      .needs(on)
      .one_of({"maps", "arrays"})
      .type_name("maps|arrays")
      .capture_default_str()
      .group(group);
  command.add_option("--kv-events-buffer", events.buffer, "Batches that are kept to be sent again, in 64 MiB at most")
      .envname("SHALE_KV_EVENTS_BUFFER")
      .needs(on)
      .range(1u, 1u << 24)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command
      .add_option("--kv-event-block-size", options.kv_event_block,
                  "Tokens of a block in events, as the router counts: a multiple of the pool's; 0: the pool's")
      .envname("SHALE_KV_EVENT_BLOCK_SIZE")
      .needs(on)
      .range(0u, 1u << 16)
      .type_name("N")
      .capture_default_str()
      .group(group);
}

// Who may use the server, and as which tenant.
void add_access_options(Command command, ServeOptions& options) {
  const char* group = "Server";
  command
      .add_option("--served-model-name", options.server.api.model_name,
                  "Name that requests ask for and answers and metrics have (default: the model's)")
      .envname("SHALE_SERVED_MODEL_NAME")
      .type_name("NAME")
      .group(group);
  command.add_option("--api-key", options.api_key, "Key that requests must bear (default: none)")
      .envname("SHALE_API_KEY")
      .type_name("KEY")
      .group(group);
  command
      .add_option("--tenants", options.tenants,
                  "Users of the server: each line has a name, the SHA-256 of a key and the user's bounds (requests=N "
                  "bytes=SIZE weight=X); --api-key is then the operator's")
      .envname("SHALE_TENANTS")
      .type_name("FILE")
      .group(group);
  command
      .add_option(
          "--tenant-requests", options.server.api.tenant_requests,
          "Requests that one tenant may have running or waiting; 0: --max-num-seqs and --max-queue, each its own")
      .envname("SHALE_TENANT_REQUESTS")
      .type_name("N")
      .capture_default_str()
      .group(group);
  add_size(command, "--tenant-bytes", options.tenant_bytes,
           "What one tenant's contexts may take on this machine's tiers, in all copies; beyond it its own are dropped",
           "any")
      .envname("SHALE_TENANT_BYTES")
      .group(group);
  command
      .add_option("--public-prefix", options.public_prefixes,
                  "A system message, computed before the server listens, that chats of all tenants find cached")
      .type_name("FILE")
      .group(group);
  command
      .add_flag("--shared-cache", options.server.api.shared_cache,
                "Let tenants find what others left in the cache: how soon they are answered tells them of it")
      .envname("SHALE_SHARED_CACHE")
      .group(group);
  command
      .add_flag("--no-auth", options.server.no_auth,
                "Serve others on the network without a key; otherwise it does not start")
      .group(group);
}

// Options for whose pages may call it, and for encryption.
void add_connection_options(Command command, ServeOptions& options) {
  const char* group = "Server";
  HttpOptions& http = options.server.http;
  command
      .add_option("--allow-host", http.allowed_hosts,
                  "Host names beside localhost that requests, and the pages that send them, may use for a server on "
                  "this machine alone")
      .envname("SHALE_ALLOW_HOST")
      .delimiter(',')
      .type_name("NAME,…")
      .group(group);
  command.add_option("--tls-cert", http.tls_certificate, "Encrypt, with this certificate and those that sign it (PEM)")
      .envname("SHALE_TLS_CERT")
      .type_name("FILE")
      .group(group);
  command.add_option("--tls-key", http.tls_key, "Key of the certificate (PEM)")
      .envname("SHALE_TLS_KEY")
      .type_name("FILE")
      .group(group);
}

void add_log_options(Command command, ServeOptions& options) {
  const char* group = "Server";
  command.add_option("--log", options.log, "A line on standard error about every request: text, json or off")
      .envname("SHALE_LOG")
      .one_of({"text", "json", "off"})
      .type_name("FORM")
      .capture_default_str()
      .group(group);
  command
      .add_option("--log-level", options.log_level,
                  "What to log: error, requests that the server failed; warn, also refused requests and trouble with "
                  "storage; info, every request")
      .envname("SHALE_LOG_LEVEL")
      .one_of({"error", "warn", "info"})
      .type_name("LEVEL")
      .capture_default_str()
      .group(group);
}

void add_scheduling_options(Command command, ServeOptions& options) {
  const char* group = "Server";
  command
      .add_option("--max-queue", options.server.loop.queue_max,
                  "Requests that may wait beside the running ones; more get 429 and may retry")
      .envname("SHALE_MAX_QUEUE")
      .range(0u, 1024u)
      .type_name("N")
      .capture_default_str()
      .group(group);
  EngineOptions& engine = options.serving.engine;
  command.add_option("--max-num-seqs", engine.sequences_max, "Requests that are computed together at most")
      .envname("SHALE_MAX_NUM_SEQS")
      .range(1u, 1024u)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--scheduler", engine.scheduler, "Which of the waiting requests of a priority is next")
      .envname("SHALE_SCHEDULER")
      .one_of(scheduler_names())
      .type_name(fmt::format("{}", fmt::join(scheduler_names(), "|")))
      .capture_default_str()
      .group(group);
  command
      .add_option("--reuse-weight", engine.scheduling.alpha, "Scheduler reuse: weight of a page that lies in the pool")
      .type_name("WEIGHT")
      .capture_default_str()
      .group(group);
  command.add_option("--waiting-weight", engine.scheduling.beta, "Scheduler reuse: weight of a second of waiting")
      .type_name("WEIGHT")
      .capture_default_str()
      .group(group);
}

// How long answers may become, and how long they are waited for at the end.
void add_answer_limits(Command command, ServeOptions& options) {
  const char* group = "Server";
  command
      .add_option("--max-tokens", options.server.api.max_tokens,
                  "Longest answer of a chat, in tokens, if its request gives none (default: all that the context has "
                  "left)")
      .envname("SHALE_MAX_TOKENS")
      .range(1u, 1u << 20)
      .type_name("N")
      .group(group);
  command.add_option("--grace", options.grace_s, "Longest wait for answers running when told to end")
      .envname("SHALE_GRACE")
      .range(0.0, 86400.0)
      .type_name("SECONDS")
      .capture_default_str()
      .group(group);
  command
      .add_option("--flush-timeout", options.flush_timeout_s,
                  "Longest wait after that, when told to end, for what is still to be stored; the rest is left out")
      .envname("SHALE_FLUSH_TIMEOUT")
      .range(0.0, 86400.0)
      .type_name("SECONDS")
      .capture_default_str()
      .group(group);
}

void add_profile_options(Command command, ServeOptions& options) {
  command
      .add_option("--profile", options.profile,
                  "Measure while the batch has a place: drifted, the model's prior, and contexts whose questions moved "
                  "away; all, contexts that are new or of which twice as much was asked, too")
      .envname("SHALE_PROFILE")
      .one_of({"never", "drifted", "all"})
      .type_name("never|drifted|all")
      .capture_default_str()
      .group("Profile");
  add_switch(
      command, "--remember-questions", options.watch.keep_questions,
      "Keep what was asked about a context in the metadata store, so that profiles are checked on it after a restart")
      .group("Profile");
  command
      .add_option("--drift-questions", options.watch.questions_between,
                  "Different questions about a context after which its profile is checked")
      .range(1u, 1u << 20)
      .type_name("N")
      .capture_default_str()
      .group("Profile");
  command
      .add_option("--drift-threshold", options.watch.check.threshold,
                  "How far quality, in --quality-metric, may fall below the profile")
      .range(0.0, 1.0)
      .type_name("SHARE")
      .capture_default_str()
      .group("Profile");
}

}  // namespace

void add_serve_options(Command command, ServeOptions& options) {
  const char* group = "Server";
  HttpOptions& http = options.server.http;
  command
      .add_option("--host", http.host,
                  "Address to listen on; 0.0.0.0: every one of this machine's; unix:/PATH: a Unix socket")
      .envname("SHALE_HOST")
      .type_name("ADDRESS")
      .capture_default_str()
      .group(group);
  command.add_option("--port", http.port, "Port to listen on; 0: one that is free, as printed")
      .envname("SHALE_PORT")
      .type_name("N")
      .capture_default_str()
      .group(group);
  add_access_options(command, options);
  add_connection_options(command, options);
  add_log_options(command, options);
  add_scheduling_options(command, options);
  add_answer_limits(command, options);
  options.serving.cache.quality_floor = 0.95;
  command
      .add_option(
          "--quality-floor", options.serving.cache.quality_floor,
          "Expected quality, in --quality-metric, below which nothing is compressed; 0: as the planner sees fit")
      .envname("SHALE_QUALITY_FLOOR")
      .range(0.0, 1.0)
      .type_name("SHARE")
      .capture_default_str()
      .group("Placement");
  add_profile_options(command, options);
  add_router_options(command, options);
  add_kv_budget_options(command, options.budget);
  add_serving_options(command, options.serving);
  add_kv_cache_dtype_option(command, options.serving.model);
}

}  // namespace shale
