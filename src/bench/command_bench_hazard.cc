#include <fmt/format.h>

#include "bench/bench_traces.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/interrupt.h"
#include "microbench/hazard.h"
#include "report/output.h"

namespace shale {
namespace {

struct BenchHazardOptions {
  OutputOptions output;
  std::vector<std::string> traces;
  bench::HazardStudyOptions study;
  bool tiny = false;
};

Json hazard_json(const bench::HazardRow& row) {
  return {{"test", "hazard"},
          {"trace", row.trace},
          {"variant", row.variant},
          {"blocks", row.blocks},
          {"hit_ratio", row.hit_ratio},
          {"first_half", row.first_half},
          {"second_half", row.second_half},
          {"lowest", row.lowest},
          {"highest", row.highest}};
}

void print_header(const std::string& trace, const std::vector<std::uint64_t>& blocks) {
  fmt::print("\n{}: whole (lowest to highest seed), first half / second half\n{:<28}", trace, "");
  for (const std::uint64_t size : blocks) fmt::print("{:>36}", fmt::format("{} blocks", size));
  fmt::print("\n");
}

std::string cell(const bench::HazardRow& row) {
  return fmt::format("{:.2f} ({:.2f} to {:.2f}), {:.2f} / {:.2f}", 100 * row.hit_ratio, 100 * row.lowest,
                     100 * row.highest, 100 * row.first_half, 100 * row.second_half);
}

Status run_bench_hazard(const BenchHazardOptions& options) {
  bench::HazardStudyOptions study = options.study;
  if (options.tiny) study = {.blocks = {10, 50}, .seeds = 2};
  SHALE_ASSIGN(const std::vector<Trace> traces, bench_traces(options.traces, options.tiny, 1));
  for (const Trace& trace : traces) {
    if (!options.output.json) print_header(trace.name, study.blocks);
    SHALE_TRY(bench::hazard_rows(trace, study, [&](const bench::HazardRow& row) -> Status {
      if (options.output.json) {
        print_json(hazard_json(row));
      } else {
        if (row.blocks == study.blocks.front()) fmt::print("{:<28}", row.variant);
        fmt::print("{:>36}{}", cell(row), row.blocks == study.blocks.back() ? "\n" : "");
      }
      return check_interrupt();
    }));
  }
  return {};
}

}  // namespace

void add_bench_hazard(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "hazard", "What policy hazard owes to which signal, and the ceiling of all of them",
                  run_bench_hazard);
  add_bench_traces(command, options->traces);
  command.add_option("--blocks", options->study.blocks, "Blocks that the cache holds")
      .type_name("N[,N]")
      .delimiter(',')
      .positive()
      .capture_default_str();
  command.add_option("--seeds", options->study.seeds, "Choices of samples to take the mean of")
      .type_name("N")
      .positive()
      .capture_default_str();
  command.add_flag("--tiny", options->tiny, "A small trace only: to see that it works");
  add_output_options(command, options->output);
}

}  // namespace shale
