#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include "cli/command.h"
#include "cli/option_types.h"
#include "core/text_file.h"
#include "loadtest/serve/serve_bench.h"
#include "loadtest/serve/serve_report.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

struct BenchServeOptions {
  ServeBenchOptions bench;
  std::vector<std::string> planners = {"prefill", "lru", "shale"};
  std::size_t dribbling = 0;
  std::string html, requests_file;
};

constexpr char kBenchServeExamples[] =
    "Every planner, rate and seed gets a server of its own, `shale serve` on a free port of 127.0.0.1 with empty "
    "caches,\n"
    "and the same requests over HTTP: chats with a context as system message and one of its questions, streamed. A\n"
    "request is sent at its planned time however many are running, and times count from then. `0.5x` is half of "
    "what\n"
    "the engine computes with nothing reused, which is measured first. The planner `no-reuse` is a server that reuses\n"
    "nothing (--prefix-cache off); `prefill` reuses the pool alone. Other options are the server's (`shale serve "
    "--help`);\n"
    "in them {folder} is a folder that is new for every server and removed after it. Neither SHALE_ variables nor the\n"
    "configuration file reach the servers, but for what this command reads of them.\n"
    "\n"
    "Examples:\n"
    "  shale bench serve --contexts nq.jsonl --contexts-max 48 --context-tokens 2000 --rate 0.5x,1x,2x --requests 200\n"
    "    --planner prefill,lru,shale --seeds 3 --memory-size 200MB --disk-size 600MB --throttle-disk hdd --html "
    "load.html\n"
    "  shale bench serve --contexts nq.jsonl --arrivals azure_llm_2023_conv.csv --rate 0.7 --planner no-reuse,shale\n"
    "  shale bench serve --contexts nq.jsonl --turns 4 --turn-gap 10 --rate 0.5x --requests 400 --planner lru,shale\n"
    "  shale bench serve --contexts nq.jsonl --rate 1x --tiers 'memory:?size=200MB,file:{folder}/kv?size=600MB'";

Status write_requests(const std::string& path, const ServeRow& row, bool first) {
  std::ofstream out(path, first ? std::ios::trunc : std::ios::app);
  for (const Json& request : request_rows(row)) out << request.dump() << '\n';
  if (!out.flush()) return fail(ErrorCode::kIo, "cannot write {}", path);
  return {};
}

// A server of its own under one load.
Result<ServeRow> run_one(const ServeBench& bench, const std::string& planner, double rate, std::uint64_t seed,
                         std::size_t dribbling) {
  SHALE_ASSIGN(const ServeBench::Bed bed, bench.start(planner));
  std::optional<DribblingClients> beside;
  if (dribbling > 0) beside.emplace(bed.server.port(), dribbling);
  SHALE_ASSIGN(ServeRow row, bench.run(bed, planner, rate, seed));
  row.dribbling = dribbling;
  if (beside) row.health = beside->health();
  beside.reset();
  bed.server.stop();
  return row;
}

Status run_bench_serve(const BenchServeOptions& options) {
  const ServeBenchOptions& with = options.bench;
  SHALE_ASSIGN(const auto file, resolve_model(with.serve.serving.model.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(file));
  ServeBench bench(with, *tokenizer);
  SHALE_TRY(bench.prepare());
  SHALE_ASSIGN(const ServeBench::Capacity capacity, bench.measure_capacity());
  bench.use(capacity);
  if (!with.output.json) fmt::print("{}\n", bench.about());
  std::fflush(stdout);

  std::vector<ServeRow> rows;
  for (std::uint64_t seed = with.seed; seed < with.seed + with.seeds; ++seed) {
    // Back and forth, so that a machine whose speed drifts favours nobody.
    std::vector<std::string> planners = options.planners;
    if ((seed - with.seed) % 2 == 1) std::ranges::reverse(planners);
    for (const double rate : bench.rates()) {
      for (const std::string& planner : planners) {
        for (const std::size_t dribbling : std::set<std::size_t>{0, options.dribbling}) {
          SHALE_ASSIGN(ServeRow row, run_one(bench, planner, rate, seed, dribbling));
          if (with.output.json) print_json(to_json(row));
          std::fflush(stdout);
          if (!options.requests_file.empty()) SHALE_TRY(write_requests(options.requests_file, row, rows.empty()));
          rows.push_back(std::move(row));
        }
      }
    }
  }
  if (!with.output.json) fmt::print("{}", text_tables(rows));
  if (!options.html.empty()) SHALE_TRY(write_file(options.html, serve_page(rows, bench.about())));
  return {};
}

}  // namespace

void add_bench_serve(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "serve", "The real server under load, planner by planner", run_bench_serve);
  command.footer(kBenchServeExamples);
  add_serve_bench_options(command, options->bench, {});
  command.option("--remote").excludes(command.option("--tiers"));
  command
      .add_option("--planner", options->planners,
                  "The planners to compare, as --planner of `shale serve`; no-reuse: every prompt is computed")
      .delimiter(',')
      .check(known_planner(kNoReuse))
      .type_name("PLANNER,...")
      .default_str(fmt::format("{}", fmt::join(options->planners, ",")));
  command
      .add_option("--turns", options->bench.turns,
                  "Questions of a chat: each after the first comes with the chat so far, a pause after its last answer")
      .range(1u, 1000u)
      .type_name("N")
      .capture_default_str();
  command.add_option("--turn-gap", options->bench.turn_gap_s, "Mean of these pauses, which are exponential")
      .range(0.0, 86400.0)
      .type_name("SECONDS")
      .capture_default_str();
  command
      .add_option(
          "--dribbling", options->dribbling,
          "Run every planner once more, as PLANNER+N, beside N connections that send a request without end, and "
          "ask for /health meanwhile")
      .range(0u, 900u)  // below the usual limit of open files
      .type_name("N")
      .capture_default_str();
  command.add_option("--html", options->html, "Write a page with charts").type_name("FILE").group("Output");
  command.add_option("--requests-out", options->requests_file, "Write every request, one object a line")
      .type_name("FILE")
      .group("Output");
}

}  // namespace shale
