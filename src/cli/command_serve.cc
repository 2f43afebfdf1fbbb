#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/serve_options.h"

namespace shale {
namespace {

struct Options {
  ServeOptions serve;
  OutputOptions output;
};

constexpr char kExamples[] =
    "Speaks OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models; and /health, /metrics. Ctrl-C or SIGTERM\n"
    "answers what is under way and stores what is worth storing; again ends the storing, and a third time the "
    "process.\n"
    "\n"
    "Examples:\n"
    "  shale serve\n"
    "  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n"
    "  SHALE_API_KEY=… shale serve --host 0.0.0.0 --port 80";

bool loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Status run(const Options& all) {
  const ServeOptions& options = all.serve;
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, all.output));
  ServerOptions server_options = options.server;
  server_options.api.model_name = std::filesystem::path(options.serving.model.model).stem();
  server_options.api.budget = options.budget.chosen();
  // Without a cache there are no contexts to profile.
  if (options.profile != "never" && options.serving.engine.prefix_cache) {
    server_options.loop.watch = options.watch;
    server_options.loop.watch->profile_new = options.profile == "all";
  }
  SHALE_ASSIGN(const auto server, Server::start(server_options, serving->engine(), serving->clock()));
  const std::string address = fmt::format("http://{}:{}", options.server.host, server->port());
  if (all.output.json) {
    print_json({{"url", address}, {"model", server_options.api.model_name}});
  } else {
    fmt::print("{} at {}/v1\n", server_options.api.model_name, address);
  }
  std::fflush(stdout);
  if (!loopback(options.server.host) && options.server.api.api_key.empty()) {
    print_note("shale: others on the network can use this server: give it a key with --api-key");
  }

  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  print_note("shale: answering what is under way");
  server->stop(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * options.grace_s)));
  catch_interrupts();
  return serving->finish_background(all.output);
}

}  // namespace

void add_serve(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "serve", "Serve the model over HTTP, as OpenAI's API", run);
  command->footer(kExamples);
  add_serve_options(*command, options->serve);
  add_output_options(*command, options->output);
}

}  // namespace shale
