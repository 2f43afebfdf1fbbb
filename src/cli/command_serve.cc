#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/requests.h"
#include "server/server.h"

namespace shale {
namespace {

struct ServeOptions {
  ServingOptions serving;
  ServerOptions server;
  PageBudgetChoice budget;
  std::string profile = "drifted";
  DriftWatchOptions watch;
  double grace_s = 30;
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

Status run(const ServeOptions& options) {
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, options.output));
  ServerOptions server_options = options.server;
  server_options.api.model_name = std::filesystem::path(options.serving.model.model).stem();
  server_options.api.budget = options.budget.chosen();
  if (options.profile != "never") server_options.loop.watch = options.watch;
  if (options.profile == "all") server_options.loop.watch->profile_new = true;
  SHALE_ASSIGN(const auto server, Server::start(server_options, serving->engine(), serving->clock()));
  const std::string address = fmt::format("http://{}:{}", options.server.host, server->port());
  if (options.output.json) {
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
  return serving->finish_background(options.output);
}

}  // namespace

void add_serve(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "serve", "Serve the model over HTTP, as OpenAI's API", run);
  command->footer(kExamples);
  const char* group = "Server";
  command->add_option("--host", options->server.host, "Address to listen on; 0.0.0.0: every one of this machine's")
      ->envname("SHALE_HOST")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->group(group);
  command->add_option("--port", options->server.port, "Port to listen on; 0: one that is free, as printed")
      ->envname("SHALE_PORT")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command->add_option("--api-key", options->server.api.api_key, "Key that requests must bear (default: none)")
      ->envname("SHALE_API_KEY")
      ->type_name("KEY")
      ->group(group);
  command
      ->add_option("--queue", options->server.loop.queue_max,
                   "Requests that may wait beside those under way; more are told to come again (429)")
      ->envname("SHALE_QUEUE")
      ->check(CLI::Range(0u, 1024u))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  EngineOptions& engine = options->serving.engine;
  command->add_option("--sequences", engine.sequences_max, "Requests that are computed together at most")
      ->envname("SHALE_SEQUENCES")
      ->check(CLI::Range(1u, 1024u))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command->add_option("--scheduler", engine.scheduler, "Which of the waiting requests of a priority is next")
      ->envname("SHALE_SCHEDULER")
      ->check(CLI::IsMember(scheduler_names()))
      ->type_name(fmt::format("{}", fmt::join(scheduler_names(), "|")))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--reuse-weight", engine.scheduling.alpha, "Scheduler reuse: weight of a page that lies in the pool")
      ->type_name("WEIGHT")
      ->capture_default_str()
      ->group(group);
  command->add_option("--waiting-weight", engine.scheduling.beta, "Scheduler reuse: weight of a second of waiting")
      ->type_name("WEIGHT")
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--max-tokens", options->server.api.max_tokens,
                   "Longest answer of a chat whose request does not say, in tokens")
      ->envname("SHALE_MAX_TOKENS")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command->add_option("--grace", options->grace_s, "Longest wait for answers under way when told to end")
      ->envname("SHALE_GRACE")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(group);
  const char* profile = "Profile";
  command
      ->add_option(
          "--profile", options->profile,
          "When there is nothing else to do: profile contexts again whose questions moved away, or new ones, too")
      ->envname("SHALE_PROFILE")
      ->check(CLI::IsMember({"never", "drifted", "all"}))
      ->type_name("never|drifted|all")
      ->capture_default_str()
      ->group(profile);
  command
      ->add_option("--drift-questions", options->watch.questions_between,
                   "Different questions about a context after which its profile is checked")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str()
      ->group(profile);
  command
      ->add_option("--drift-threshold", options->watch.check.threshold, "How far agreement may fall below the profile")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->capture_default_str()
      ->group(profile);
  add_page_budget_options(*command, options->budget);
  add_serving_options(*command, options->serving);
  add_resident_option(*command, options->serving.model);
  add_output_options(*command, options->output);
}

}  // namespace shale
