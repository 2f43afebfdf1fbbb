#include <fmt/format.h>

#include "bench/bench_machine.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/units.h"
#include "microbench/scoring_cost.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct BenchScoringOptions {
  ModelChoice model;
  OutputOptions output;
  std::uint32_t tokens = 4096, rounds = 3;
  bool tiny = false;
};

constexpr char kBenchScoringExamples[] =
    "Prefills that are watched for one thing and prefills that are not take turns; results are medians. A scorer's\n"
    "cost is that of gathering what it reads and of scoring all layers without a sliding window; others are never\n"
    "ranked.\n"
    "\n"
    "Examples:\n"
    "  shale bench scoring\n"
    "  shale bench scoring --model qwen2.5-coder-0.5b --tokens 2048 --json";

void print_scoring(const bench::ScoringCosts& costs) {
  fmt::print("prefill {}, of which attention {}\n\n", format_duration(costs.prefill_seconds),
             format_duration(costs.attention_seconds));
  fmt::print("{:<20}  {:>10}  {:>12}  {:>14}\n", "WATCHED FOR", "TIME", "OF PREFILL", "OF ATTENTION");
  for (const bench::ObservingCost& cost : costs.observing) {
    fmt::print("{:<20}  {:>8.1f}ms  {:>11.1f}%  {:>13.1f}%\n", cost.observed, 1e3 * cost.seconds,
               100 * cost.prefill_share, 100 * cost.attention_share);
  }
  fmt::print("\n{} layers are ranked\n\n{:<20}  {:>10}  {:>10}  {:>12}\n", costs.layers, "SCORER", "WATCHING",
             "SCORING", "OF PREFILL");
  for (const bench::ScoringCost& cost : costs.scoring) {
    fmt::print("{:<20}  {:>8.1f}ms  {:>8.1f}ms  {:>11.1f}%\n", cost.scorer, 1e3 * cost.observing_seconds,
               1e3 * cost.seconds, 100 * cost.prefill_share);
  }
}

void print_rows(const bench::ScoringCosts& costs, std::uint32_t tokens, Model& model, const Machine& machine) {
  const auto row = [&](std::string_view test, Json fields) {
    fields["test"] = test;
    fields["tokens"] = tokens;
    fields["layers"] = costs.layers;
    fields["prefill_seconds"] = costs.prefill_seconds;
    fields["attention_seconds"] = costs.attention_seconds;
    fields["threads"] = model.executor().threads();
    fields["model"] = model.info().name;
    fields["machine"] = machine.json();
    print_json(fields);
  };
  for (const bench::ObservingCost& cost : costs.observing) {
    row("observe", {{"observed", cost.observed},
                    {"seconds", cost.seconds},
                    {"prefill_share", cost.prefill_share},
                    {"attention_share", cost.attention_share}});
  }
  for (const bench::ScoringCost& cost : costs.scoring) {
    row("score", {{"scorer", cost.scorer},
                  {"observing_seconds", cost.observing_seconds},
                  {"seconds", cost.seconds},
                  {"prefill_share", cost.prefill_share}});
  }
}

Status run_bench_scoring(const BenchScoringOptions& options) {
  SHALE_ASSIGN(const auto file, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto model, open_model(options.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(file));
  const Machine machine = measure_machine();
  const std::uint32_t tokens = options.tiny ? 100 : options.tokens;
  SHALE_ASSIGN(const bench::ScoringCosts costs,
               bench::measure_scoring(*model, *tokenizer, tokens, options.tiny ? 1 : options.rounds));
  if (options.output.json) {
    print_rows(costs, tokens, *model, machine);
  } else {
    fmt::print("{}\n{}, {} tokens\n", machine.text(), model->info().name, tokens);
    print_scoring(costs);
  }
  return {};
}

}  // namespace

void add_bench_scoring(Command parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "scoring",
                                        "What scorers cost beside the prefill that they follow", run_bench_scoring);
  command.footer(kBenchScoringExamples);
  command.add_option("--tokens", options->tokens, "Tokens of the context")
      .range(100, 1 << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--rounds", options->rounds, "Times that each is measured")
      .range(1, 100)
      .type_name("N")
      .capture_default_str();
  command.add_flag("--tiny", options->tiny, "A few tokens, for a second: to see that it works");
  add_model_options(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
