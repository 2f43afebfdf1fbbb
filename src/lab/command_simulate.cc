#include "lab/command_simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/option_types.h"
#include "core/clock.h"
#include "core/interrupt.h"
#include "core/resources.h"
#include "core/text_file.h"
#include "core/units.h"
#include "lab/simulate_report.h"
#include "lab/trace_options.h"
#include "sim/sweep.h"

namespace shale {
namespace {

constexpr std::uint32_t kTimelinePointsOfCharts = 60;

struct SimulateOptions {
  std::vector<std::string> traces;
  TraceChoice reading;
  std::vector<std::string> policies = {"lru", "hybrid", "lfu", std::string(kOptimum)};
  std::vector<std::string> schedulers = {"fifo"};
  std::vector<std::uint64_t> blocks;
  SimulationOptions common;
  ServiceModel service;
  std::string hybrid_length = "depth";  // or "1"
  bool online = false, csv = false;
  std::string html, svg;
  std::uint32_t timeline_points = 0;
  std::size_t threads = 0;
  OutputOptions output;
  Action subcommand;  // what a subcommand left to be done, where one was chosen

  bool draws() const { return !html.empty() || !svg.empty(); }
};

// 1, 2, 5, 10 … from half a per cent of the trace's blocks to all of them.
std::vector<std::uint64_t> default_sizes(const Trace& trace) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t decade = 1;; decade *= 10) {
    for (const std::uint64_t step : {1, 2, 5}) {
      if (200 * decade * step >= trace.unique_blocks()) sizes.push_back(decade * step);
      if (decade * step >= trace.unique_blocks()) return sizes;
    }
  }
}

Result<std::vector<Trace>> load_each(const SimulateOptions& options) {
  SHALE_ASSIGN(const TraceOptions reading, to_options(options.reading));
  std::vector<Trace> traces;
  for (const std::string& file : options.traces) {
    SHALE_ASSIGN(NamedTrace named, load_trace_watched(file, reading, options.output));
    traces.push_back(std::move(named.trace));
  }
  return traces;
}

// One run for each policy, scheduler and size, in that order; the sizes are the trace's own where none are asked for.
// The optimum is left out, with a note, where the order of requests is not fixed and others are asked for beside it.
Result<std::vector<SimulationOptions>> runs_of(const SimulateOptions& options,
                                               const std::vector<std::uint64_t>& sizes) {
  std::vector<SimulationOptions> runs;
  for (const std::string& policy : options.policies) {
    for (const std::string& scheduler : options.schedulers) {
      SimulationOptions run = options.common;
      run.policy = policy;
      run.scheduler = scheduler;
      if (options.online) run.service = options.service;
      run.hybrid_counts_length = options.hybrid_length == "depth";
      run.timeline_points = options.timeline_points;
      if (options.draws() && run.timeline_points == 0) run.timeline_points = kTimelinePointsOfCharts;
      for (const std::uint64_t blocks : sizes) {
        run.blocks = blocks;
        const Status sound = check_simulation(run);
        if (!sound && !(policy == kOptimum && !order_is_fixed(run) && options.policies.size() > 1)) {
          return std::unexpected(sound.error());
        }
        if (sound) runs.push_back(run);
      }
    }
  }
  return runs;
}

Status draw(const SimulateOptions& options, const std::vector<SimulatedRow>& rows) {
  const std::vector<Chart> charts = charts_of(rows);
  if (!options.html.empty()) SHALE_TRY(write_file(options.html, simulate_page(rows, charts)));
  if (!options.svg.empty()) SHALE_TRY(write_file(options.svg, svg_file(charts)));
  return {};
}

Status run_simulate(const SimulateOptions& options) {
  if (options.subcommand) return options.subcommand();
  if (options.traces.empty()) return fail(ErrorCode::kInvalidArgument, "--trace is missing: give the FILE to simulate");
  // What is asked for is checked before anything is loaded.
  const std::vector<std::uint64_t> any_size = {1};
  SHALE_ASSIGN(const auto asked, runs_of(options, options.blocks.empty() ? any_size : options.blocks));
  if (asked.size() <
      options.policies.size() * options.schedulers.size() * std::max<std::size_t>(options.blocks.size(), 1)) {
    print_note("the optimum is left out where what is cached changes the order of requests");
  }
  SHALE_ASSIGN(const std::vector<Trace> traces, load_each(options));
  std::vector<SweepRun> runs;
  for (const Trace& trace : traces) {
    SHALE_ASSIGN(const auto of_trace, runs_of(options, options.blocks.empty() ? default_sizes(trace) : options.blocks));
    for (const SimulationOptions& run : of_trace) runs.push_back({&trace, run});
  }

  if (options.csv) fmt::print("{}\n", csv_header(options.online));
  std::vector<SimulatedRow> rows;
  {
    Progress progress(options.output, "simulating");
    const auto on_result = [&](std::size_t nth, const SimulationResult& result) -> Status {
      const SimulatedRow& row = rows.emplace_back(runs[nth].trace, runs[nth].options, result);
      if (options.output.json) print_json(to_json(row, options.timeline_points > 0));
      if (options.csv) fmt::print("{}\n", csv_line(row));
      return {};
    };
    const RealClock clock;
    const auto keep_going = [&, start_s = clock.now_s()](std::size_t done) {
      if (done > 0) {
        const double left_s =
            (clock.now_s() - start_s) * static_cast<double>(runs.size() - done) / static_cast<double>(done);
        progress.rename(fmt::format("simulating, {} left", format_duration(left_s)));
      }
      progress(done, runs.size());
      return !interrupted();
    };
    const std::size_t threads = options.threads > 0 ? options.threads : usable_cores();
    SHALE_TRY(sweep(runs, threads, {on_result, keep_going}));
  }
  if (!options.output.json && !options.csv) fmt::print("{}", text_tables(rows));
  if (interrupted()) {
    print_note(
        fmt::format("interrupted: {} of {} runs; those with a * (in JSON: \"interrupted\") saw part of their requests",
                    rows.size(), runs.size()));
  }
  return draw(options, rows);
}

void add_online_options(Command command, SimulateOptions& options) {
  Option online = command
                      .add_flag("--online", options.online,
                                "Requests wait for a server; the scheduler chooses among all that have arrived")
                      .group("Online")
                      .excludes(command.option("--window"));
  const auto add_rate = [&](const char* name, double& value, const char* description) {
    command.add_option(name, value, description)
        .type_name("TOKENS/S")
        .capture_default_str()
        .group("Online")
        .needs(online);
  };
  add_rate("--prefill-rate", options.service.prefill_tokens_per_s, "Prompt tokens that a server computes");
  add_rate("--cached-rate", options.service.cached_tokens_per_s, "Prompt tokens whose KV is found");
  add_rate("--decode-rate", options.service.decode_tokens_per_s, "Of a request; 0: decoding keeps no server busy");
  command.add_option("--servers", options.service.servers, "That serve one request each at a time")
      .type_name("N")
      .capture_default_str()
      .group("Online")
      .needs(online);
}

void add_hybrid_length(Command command, SimulateOptions& options) {
  command
      .add_option("--hybrid-length", options.hybrid_length,
                  "Policy hybrid: the length of a block is its depth in blocks, or 1")
      .one_of({"depth", "1"})
      .capture_default_str();
}

}  // namespace

void add_simulate(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "simulate",
                  "How large a cache, which policy, which scheduler: answered from a request trace", run_simulate);
  command.add_option("--trace", options->traces, "Request traces (docs/formats/trace.md); '-' is standard input")
      .type_name("FILE[,FILE]")
      .delimiter(',');
  command.add_option("--policy", options->policies, "Which block goes")
      .type_name("NAME[,NAME]")
      .delimiter(',')
      .capture_default_str();
  command.add_option("--scheduler", options->schedulers, "Which request is next: fifo, shortest, longest, reuse")
      .type_name("NAME[,NAME]")
      .delimiter(',')
      .capture_default_str();
  command
      .add_option("--blocks", options->blocks,
                  "Blocks that the cache holds (default: from half a per cent of the trace's blocks to all)")
      .type_name("N[,N]")
      .delimiter(',');
  command.add_option("--window", options->common.window_s, "Requests of one window are a batch; 0: of one timestamp")
      .type_name("SECONDS")
      .capture_default_str();
  command.add_option("--alpha", options->common.alpha, "Scheduler reuse: weight of a block that is found")
      .type_name("X")
      .capture_default_str();
  command.add_option("--beta", options->common.beta, "Scheduler reuse: weight of a second of waiting")
      .type_name("X")
      .capture_default_str();
  command.add_flag("--decode", options->common.decode, "Answers are cached too: they take room and may be found");
  command.add_option("--seed", options->common.seed, "Seed of policies that draw lots")
      .type_name("N")
      .capture_default_str();
  add_hybrid_length(command, *options);
  command.add_option("--threads", options->threads, "Runs at once; 0: one a core").type_name("N").capture_default_str();
  add_online_options(command, *options);
  add_trace_options(command, options->reading);
  add_output_options(command, options->output);
  command.add_flag("--csv", options->csv, "Print comma-separated values")
      .group("Output")
      .excludes(command.option("--json"));
  command.add_option("--timeline", options->timeline_points, "Points of a time line in each object of --json")
      .type_name("N")
      .group("Output");
  command.add_option("--html", options->html, "Write a page with charts").type_name("FILE").group("Output");
  command.add_option("--svg", options->svg, "Write the charts alone").type_name("FILE").group("Output");
  command.footer(
      "Without --json or --csv a table of hit ratios in per cent is printed, a column for each policy.\n"
      "\n"
      "Examples:\n"
      "  shale simulate --trace conversation_trace.jsonl\n"
      "  shale simulate --trace a.jsonl,b.jsonl --policy lru,s3fifo --blocks 1000,10000 --html report.html\n"
      "  shale simulate --trace a.jsonl --scheduler fifo,reuse --online --prefill-rate 8000 --servers 4\n"
      "  shale simulate reproduce --traces FOLDER");
  add_simulate_reproduce(command, options->subcommand);
  add_simulate_tiers(command, options->subcommand);
  add_simulate_fleet(command, options->subcommand);
}

}  // namespace shale
