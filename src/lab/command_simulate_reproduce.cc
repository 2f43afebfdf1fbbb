#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/resources.h"
#include "lab/command_simulate.h"
#include "report/output.h"
#include "sim/published.h"
#include "sim/sweep.h"
#include "trace/trace_reader.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSizes = kPublishedBlocks.size();

constexpr char kLegend[] =
    "Hit ratios in per cent, ours above the published value, then the difference in points. Requests that share a\n"
    "timestamp are put in the scheduler's order; a prompt's blocks are looked up, then all inserted, then leaves go.\n"
    "LRU is met in every digit. Hybrid: the paper's table does not follow the formula that it prints, but the "
    "smallest\n"
    "last access + 2.5 x usage, here `hybrid_tabulated`, within 0.01. LFU cannot be met cell by cell: which of many\n"
    "equally used leaves goes decides, and the paper does not say which; here the newest goes.\n";

struct ReproduceOptions {
  std::string folder;
  std::size_t threads = 0;
  OutputOptions output;
};

struct Cell {
  const PublishedRow* row;
  std::size_t size;  // of kPublishedBlocks
  double hit_ratio;

  double published_percent() const { return row->hit_percent[size]; }
  double difference() const { return std::round(hit_ratio * 1e4) / 1e2 - published_percent(); }
  bool held() const { return agrees(row->agreement, hit_ratio, published_percent()); }
};

Result<fs::path> trace_file(const std::string& folder, std::string_view trace) {
  for (const char* prefix : {"mooncake_", ""}) {
    fs::path path = fs::path(folder) / fmt::format("{}{}_trace.jsonl", prefix, trace);
    std::error_code none;
    if (fs::exists(path, none)) return path;
  }
  return fail(ErrorCode::kNotFound,
              "'{}' has no {}_trace.jsonl: get it from github.com/kvcache-ai/Mooncake, FAST25-release/traces, and name "
              "its folder by --traces",
              folder, trace);
}

Result<std::map<std::string_view, Trace>> load_traces(const std::string& folder) {
  std::map<std::string_view, Trace> traces;
  for (const PublishedRow& row : published_table()) {
    if (traces.contains(row.trace)) continue;
    SHALE_ASSIGN(const fs::path path, trace_file(folder, row.trace));
    SHALE_ASSIGN(traces[row.trace], load_trace(path));
  }
  return traces;
}

void print_rows(const std::vector<Cell>& cells) {
  fmt::print("{}\n{:<14}{:<18}{:<10}{:<11}", kLegend, "TRACE", "POLICY", "SCHEDULER", "");
  for (const std::uint64_t blocks : kPublishedBlocks) fmt::print("{:>9}", blocks);
  for (std::size_t first = 0; first < cells.size(); first += kSizes) {
    const PublishedRow& row = *cells[first].row;
    const auto line = [&](std::string_view what, const auto& value, const char* format) {
      fmt::print("{:<11}", what);
      for (std::size_t i = first; i < first + kSizes; ++i) fmt::print(fmt::runtime(format), value(cells[i]));
    };
    fmt::print("\n{:<14}{:<18}{:<10}", row.trace, row.ours, row.scheduler);
    line("ours", [](const Cell& cell) { return 100 * cell.hit_ratio; }, "{:>9.2f}");
    fmt::print("\n{:42}", "");
    line("published", [](const Cell& cell) { return cell.published_percent(); }, "{:>9.2f}");
    fmt::print("\n{:42}", "");
    line("difference", [](const Cell& cell) { return cell.difference(); }, "{:>+9.2f}");
  }
  fmt::print("\n\n");
}

Json cell_json(const Cell& cell, const SimulationResult& result, const Trace& trace) {
  return {{"trace", trace.name},
          {"policy", cell.row->ours},
          {"scheduler", cell.row->scheduler},
          {"blocks", kPublishedBlocks[cell.size]},
          {"requests", result.requests},
          {"blocks_requested", result.blocks_requested},
          {"blocks_reused", result.blocks_reused},
          {"hit_ratio", cell.hit_ratio},
          {"seconds", result.seconds},
          {"published_policy", cell.row->policy},
          {"published_hit_ratio", cell.published_percent() / 100},
          {"difference", cell.difference() / 100},
          {"held", cell.row->agreement == Agreement::kIndicative ? Json() : Json(cell.held())}};
}

// One line for each policy of the paper: how many cells hold, and how far off the farthest is.
void print_agreement(const std::vector<Cell>& cells) {
  struct Summary {
    std::size_t cells = 0, equal = 0;
    double farthest = 0;
  };
  std::map<std::string_view, Summary> summaries;
  for (const Cell& cell : cells) {
    Summary& summary = summaries[cell.row->policy];
    ++summary.cells;
    summary.equal += std::abs(cell.difference()) < 0.005;
    summary.farthest = std::max(summary.farthest, std::abs(cell.difference()));
  }
  for (const auto& [policy, summary] : summaries) {
    fmt::print("{:<7} {:>2} of {} cells equal, the farthest {:.2f} points off\n", policy, summary.equal, summary.cells,
               summary.farthest);
  }
}

Status run_simulate_reproduce(const ReproduceOptions& options) {
  const char* data = std::getenv("SHALE_DATA_DIR");
  if (options.folder.empty() && data == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "--traces FOLDER is needed: where conversation_trace.jsonl and "
                "synthetic_trace.jsonl lie");
  }
  SHALE_ASSIGN(const auto traces,
               load_traces(options.folder.empty() ? (fs::path(data) / "traces").string() : options.folder));
  std::vector<SweepRun> runs;
  std::vector<Cell> cells;
  for (const PublishedRow& row : published_table()) {
    for (std::size_t size = 0; size < kSizes; ++size) {
      cells.push_back({&row, size, 0});
      runs.push_back({&traces.at(row.trace),
                      {.policy = std::string(row.ours),
                       .scheduler = std::string(row.scheduler),
                       .blocks = kPublishedBlocks[size]}});
    }
  }
  {
    Progress progress(options.output, "reproducing");
    const auto on_result = [&](std::size_t nth, const SimulationResult& result) -> Status {
      SHALE_TRY(check_interrupt());
      cells[nth].hit_ratio = result.hit_ratio();
      if (options.output.json) print_json(cell_json(cells[nth], result, *runs[nth].trace));
      return {};
    };
    const auto keep_going = [&](std::size_t done) {
      progress(done, runs.size());
      return !interrupted();
    };
    const std::size_t threads = options.threads > 0 ? options.threads : usable_cores();
    SHALE_TRY(sweep(runs, threads, {on_result, keep_going}));
    SHALE_TRY(check_interrupt());
  }
  if (!options.output.json) {
    print_rows(cells);
    print_agreement(cells);
  }
  const auto missed = std::ranges::count_if(cells, [](const Cell& cell) { return !cell.held(); });
  if (missed > 0) return fail(ErrorCode::kMismatch, "{} cells differ from the published table", missed);
  return {};
}

}  // namespace

void add_simulate_reproduce(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "reproduce", "Rerun a published table of hit ratios and compare cell by cell",
                  run_simulate_reproduce);
  command.add_option("--traces", options->folder, "Where the two Mooncake traces lie (default: $SHALE_DATA_DIR/traces)")
      .type_name("FOLDER");
  command.add_option("--threads", options->threads, "Runs at once; 0: one a core").type_name("N").capture_default_str();
  add_output_options(command, options->output);
  command.footer(
      "The table is that of \"A Systematic Study of KV Cache Management for Efficient LLM Inference\". Fails when LRU\n"
      "misses a cell or the Hybrid of its table differs by more than 0.01 points.");
}

}  // namespace shale
