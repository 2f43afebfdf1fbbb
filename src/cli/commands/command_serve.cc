#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "cli/command.h"
#include "cli/end_watch.h"
#include "cli/option_types.h"
#include "cli/serve_options.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/units.h"
#include "report/background_writer.h"
#include "report/output.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

struct Options {
  ServeOptions serve;
  OutputOptions output;
};

constexpr int kToldAgain = 130;             // exit status
constexpr double kHangingS = 2;             // for what cannot be told to end, after all else is given up
constexpr int kOwnMappingBytes = 64 << 10;  // and more: memory that goes back to the system when it is freed

constexpr char kServeExamples[] =
    "Speaks OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models; and /health, /metrics. Ctrl-C or SIGTERM\n"
    "answers what is running and stores what is worth storing, each for a bounded time; again ends the process at "
    "once.\n"
    "\n"
    "Examples:\n"
    "  shale serve\n"
    "  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n"
    "  SHALE_API_KEY=… shale serve --host 0.0.0.0 --port 443 --tls-cert cert.pem --tls-key key.pem";

// An empty key would be none, which nobody means who gives one: CLI11 passes over variables that are set to nothing.
Status check_key(const std::optional<std::string>& key) {
  const char* variable = std::getenv("SHALE_API_KEY");
  if (key ? !key->empty() : variable == nullptr) return {};
  return fail(ErrorCode::kInvalidArgument, "{} is empty: give a key, or leave it out",
              key ? "--api-key" : "SHALE_API_KEY");
}

std::string url_of(const HttpOptions& http, std::uint16_t port) {
  if (http.host.starts_with("unix:")) return http.host;
  const bool six = http.host.contains(':');
  return fmt::format("{}://{}{}{}:{}", http.tls_certificate.empty() ? "http" : "https", six ? "[" : "", http.host,
                     six ? "]" : "", port);
}

// An option that is given about tenants; empty where none is.
std::string_view given_about_tenants(const ServeOptions& options) {
  if (options.tenant_bytes > 0) return "--tenant-bytes";
  if (options.server.api.tenant_requests > 0) return "--tenant-requests";
  return options.server.api.shared_cache ? "--shared-cache" : "";
}

// What the files that the options name say of tenants and what they share.
Status read_tenants(ServeOptions& options) {
  ApiOptions& api = options.server.api;
  if (!options.tenants.empty()) {
    SHALE_ASSIGN(const std::string text, read_text(options.tenants));
    auto tenants = parse_tenants(text);
    if (!tenants) return fail_in(options.tenants, std::move(tenants).error());
    api.tenants = std::move(*tenants);
  }
  for (const Tenant& tenant : api.tenants) {
    const std::uint64_t bytes_max = tenant.bytes_max.value_or(options.tenant_bytes);
    if (bytes_max > 0) options.serving.cache.tenant_bytes.emplace(tenant.name, bytes_max);
  }
  if (const std::string_view option = given_about_tenants(options); !option.empty() && api.tenants.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} is about tenants, and there are none: give --tenants", option);
  }
  if (api.shared_cache && !options.serving.cache.tenant_bytes.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "with --shared-cache what is stored is nobody's own: leave it or the tenants' bounds of bytes out");
  }
  for (const std::string& file : options.public_prefixes) {
    SHALE_ASSIGN(api.public_prefixes.emplace_back(), read_text(file));
  }
  return {};
}

// What is told while it serves and until it ends, which nobody may keep it from.
using Notes = std::shared_ptr<BackgroundWriter>;

RequestLog::Form form_of(const ServeOptions& options) {
  return options.log == "text" ? RequestLog::Form::kText : RequestLog::Form::kJson;
}

Notes make_notes(const ServeOptions& options) {
  const auto left_out = [form = form_of(options), logs = options.log != "off"](std::uint64_t lines) {
    const std::string text = fmt::format("lines left out, as nobody read the log: {}", lines);
    return logs ? note_line(form, LogLevel::kWarn, text) : "shale: " + text + '\n';
  };
  return std::make_shared<BackgroundWriter>(print_error, left_out);
}

std::shared_ptr<RequestLog> make_log(const ServeOptions& options, const Notes& notes) {
  const LogLevel level = options.log_level == "error"  ? LogLevel::kError
                         : options.log_level == "warn" ? LogLevel::kWarn
                                                       : LogLevel::kInfo;
  return std::make_shared<RequestLog>(form_of(options), level, [notes](std::string_view line) { notes->add(line); });
}

// For so long at most; then ends the process without waiting for writes in flight. Stored bytes survive that as they
// survive a kill: what is not whole is a miss, and is removed when its folder is opened next.
Status store_the_rest(Serving& serving, double seconds, OutputOptions output, const Notes& notes, EndWatch& end) {
  constexpr auto kUntil = "shale: what was still to be stored after {:g} s (--flush-timeout) is left out: {}";
  catch_interrupts();
  if (serving.engine().stores_any()) notes->add("shale: storing what is left; again ends at once\n");
  end.arm(seconds + kHangingS, fmt::format(kUntil, seconds, "a tier is too slow or does not answer"));
  output.print = [notes](std::string_view text) { notes->add(text); };
  const auto left = serving.finish_storing(output, seconds);
  if (!left) {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);  // what is left to do may be broken off
    end.arm(kHangingS, "shale: a move between tiers was broken off; what is stored lies where it lay", 0);
    return {};
  }
  const std::string what =
      fmt::format("{} save{}, about {}", left->saves, left->saves == 1 ? "" : "s", format_bytes(left->bytes));
  const bool told_again = interrupted();
  notes->add((told_again ? fmt::format("shale: what was still to be stored is left out: {}", what)
                         : fmt::format(kUntil, seconds, what)) +
             '\n');
  notes->finish();
  _exit(told_again ? kToldAgain : 1);
}

Status run_serve(const Options& all) {
  ServeOptions options = all.serve;
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the log may end sooner
  SHALE_TRY(check_key(options.api_key));
  SHALE_TRY(read_tenants(options));
  // A fixed threshold: glibc raises it to the largest buffer that was freed, up to 32 MiB, so that the buffers of
  // tiers come to lie among small allocations, whose heap then grows by its holes.
  mallopt(M_MMAP_THRESHOLD, kOwnMappingBytes);
  if (!options.kv_events.endpoint.empty()) options.serving.kv_event_block = options.kv_event_block;
  const Notes notes = make_notes(options);
  EndWatch end([notes](const std::string& message) {
    notes->add(message + '\n');
    notes->finish();
  });  // outlives what may hang
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, all.output));
  ServerOptions server_options = options.server;
  std::string& name = server_options.api.model_name;
  if (name.empty()) name = served_name(options.serving.model.model);
  server_options.api.api_key = options.api_key.value_or("");
  if (options.serving.kv_event_block) {
    server_options.kv_events = options.kv_events;
    server_options.kv_events->encoding = options.kv_encoding == "arrays" ? KvEncoding::kArrays : KvEncoding::kMaps;
  }
  if (options.log != "off") server_options.api.log = make_log(options, notes);
  server_options.api.budget = options.budget.chosen();
  if (options.profile != "never") {
    server_options.loop.watch = options.watch;
    server_options.loop.watch->profile_new = options.profile == "all";
  }
  server_options.loop.on_note = [log = server_options.api.log, notes](const std::string& line) {
    if (log) {
      log->note(LogLevel::kWarn, line);
    } else {
      notes->add("shale: " + line + '\n');
    }
  };
  server_options.http.on_note = server_options.loop.on_note;
  SHALE_ASSIGN(const auto server, Server::start(server_options, serving->engine(), serving->clock()));
  const std::string url = url_of(server_options.http, server->port());
  const KvPublisher* events = server->kv_publisher();
  if (all.output.json) {
    Json line = {{"url", url}, {"model", server_options.api.model_name}};
    if (events) line.update({{"kv_events", events->endpoint()}, {"kv_events_replay", events->replay_endpoint()}});
    print_json(line);
  } else {
    fmt::print("{} at {}{}\n", server_options.api.model_name, url, server->port() ? "/v1" : "");
    if (events) fmt::print("KV events at {}\n", events->endpoint());
  }
  std::fflush(stdout);

  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  notes->add("shale: answering what is running\n");
  server->stop(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * options.grace_s)));
  return store_the_rest(*serving, options.flush_timeout_s, all.output, notes, end);
}

}  // namespace

void add_serve(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "serve", "Serve the model over HTTP, as OpenAI's API", run_serve);
  command.footer(kServeExamples);
  add_serve_options(command, options->serve);
  add_output_options(command, options->output);
}

}  // namespace shale
