#include <fmt/format.h>

#include "bench/bench_machine.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/units.h"
#include "microbench/planner.h"

namespace shale {
namespace {

struct BenchPlannerOptions {
  OutputOptions output;
  std::uint64_t seed = 1;
  bool tiny = false;
};

Json planner_json(const bench::PlannerRow& row, const Machine& machine) {
  return {{"test", "planner"},
          {"planner", row.planner},
          {"prefixes", row.prefixes},
          {"candidates", row.candidates},
          {"demote_seconds", row.demote_seconds},
          {"promote_seconds", row.promote_seconds},
          {"bound_seconds", row.bound_seconds},
          {"utility", row.utility},
          {"bound", row.bound},
          {"share_of_bound", row.share_of_bound},
          {"distance_per_access_seconds", row.distance_per_access},
          {"machine", machine.json()}};
}

Json planner_json(const bench::PlannerChangesRow& row, const Machine& machine) {
  return {{"test", "planner_changes"},      {"planner", row.planner}, {"prefixes", row.prefixes},
          {"changes", row.changes},         {"count", row.count},     {"mean_seconds", row.mean_seconds},
          {"p99_seconds", row.p99_seconds}, {"moves", row.moves},     {"share_of_bound", row.share_of_bound},
          {"machine", machine.json()}};
}

Status run_bench_planner(const BenchPlannerOptions& options) {
  bench::PlannerBenchOptions bench_options;
  bench_options.seed = options.seed;
  if (options.tiny) bench_options.prefixes = {100};
  const Machine machine = measure_machine();
  const RealClock clock;
  const auto rows = bench::planner_rows(bench_options, clock);
  if (!options.output.json) {
    fmt::print("{}\n\n{:<16} {:>8} {:>11} {:>11} {:>9} {:>18}\n", machine.text(), "PLANNER", "PREFIXES", "DEMOTE",
               "PROMOTE", "OF BOUND", "SHORT AN ACCESS BY");
  }
  for (const auto& row : rows) {
    if (options.output.json) {
      print_json(planner_json(row, machine));
    } else {
      fmt::print("{:<16} {:>8} {:>11} {:>11} {:>7.1f} % {:>18}\n", row.planner, row.prefixes,
                 format_duration(row.demote_seconds), format_duration(row.promote_seconds), 100 * row.share_of_bound,
                 format_duration(row.distance_per_access));
    }
  }
  const auto changes = bench::planner_changes_rows(bench_options, clock);
  if (!options.output.json) {
    fmt::print("\n{:<16} {:>8} {:<8} {:>11} {:>11} {:>9} {:>9}\n", "PLANNER", "PREFIXES", "CHANGES", "MEAN", "P99",
               "MOVES", "OF BOUND");
  }
  for (const auto& row : changes) {
    if (options.output.json) {
      print_json(planner_json(row, machine));
    } else {
      fmt::print("{:<16} {:>8} {:<8} {:>11} {:>11} {:>9} {:>7.2f} %\n", row.planner, row.prefixes, row.changes,
                 format_duration(row.mean_seconds), format_duration(row.p99_seconds), row.moves,
                 100 * row.share_of_bound);
    }
  }
  return {};
}

}  // namespace

void add_bench_planner(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "planner", "How fast each planner decides, and how near it comes to the bound",
                  run_bench_planner);
  command.add_option("--seed", options->seed, "Seed of the problems").type_name("N").capture_default_str();
  command.add_flag("--tiny", options->tiny, "The smallest problem only: to see that it works");
  add_output_options(command, options->output);
}

}  // namespace shale
