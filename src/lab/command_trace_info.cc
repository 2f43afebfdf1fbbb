#include <fmt/format.h>

#include <bit>

#include "cli/option_types.h"
#include "core/units.h"
#include "lab/command_trace.h"
#include "lab/trace_options.h"
#include "trace/trace_statistics.h"

namespace shale {
namespace {

struct InfoOptions {
  std::vector<std::string> files;
  TraceChoice trace;
  double window_s = 0;
  OutputOptions output;
};

// Reuses at distances below `below`, and not below half of it.
struct DistanceBin {
  std::uint64_t below = 0, accesses = 0;
};

std::vector<DistanceBin> bins_of(const std::vector<ReuseDistance>& distances) {
  std::vector<DistanceBin> bins;
  for (const ReuseDistance& d : distances) {
    const std::uint64_t below = std::bit_floor(d.distance) * 2 + (d.distance == 0);
    if (bins.empty() || bins.back().below != below) bins.push_back({below, 0});
    bins.back().accesses += d.accesses;
  }
  return bins;
}

Json spread_json(const Spread& spread) {
  return {{"mean", spread.mean}, {"p50", spread.p50}, {"p90", spread.p90}, {"p99", spread.p99}, {"max", spread.max}};
}

Json trace_json(const NamedTrace& named, const TraceStatistics& s) {
  Json histogram = Json::array(), windows = Json::array();
  for (const DistanceBin& bin : bins_of(s.reuse_distances)) {
    histogram.push_back({{"below", bin.below}, {"accesses", bin.accesses}});
  }
  for (const TraceWindow& w : s.windows) {
    windows.push_back({{"start_seconds", w.start_s},
                       {"requests", w.requests},
                       {"blocks", w.blocks},
                       {"unique_blocks", w.unique_blocks},
                       {"new_blocks", w.new_blocks}});
  }
  return {{"trace", named.trace.name},
          {"format", named.format},
          {"block_tokens", named.trace.block_tokens},
          {"requests", s.requests},
          {"blocks", s.blocks},
          {"unique_blocks", s.unique_blocks},
          {"output_blocks", s.output_blocks},
          {"input_tokens", s.input_tokens},
          {"output_tokens", s.output_tokens},
          {"prompt_tokens", spread_json(s.prompt_tokens)},
          {"answer_tokens", spread_json(s.answer_tokens)},
          {"duration_seconds", s.duration_s},
          {"gap_seconds", spread_json(s.gap_s)},
          {"gap_variation", s.gap_variation},
          {"busiest_second", s.busiest_second},
          {"reused_blocks", s.reused_blocks},
          {"reusing_requests", s.reusing_requests},
          {"hit_ratio_unbounded", s.hit_ratio_unbounded},
          {"reuse_distance",
           {{"p50", distance_quantile(s.reuse_distances, 0.5)},
            {"p90", distance_quantile(s.reuse_distances, 0.9)},
            {"p99", distance_quantile(s.reuse_distances, 0.99)},
            {"histogram", std::move(histogram)}}},
          {"window_seconds", s.window_s},
          {"windows", std::move(windows)}};
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_property(std::string_view name, const std::string& text) { fmt::print("{:<16} {}\n", name, text); }

std::string lengths(const Spread& s) {
  return fmt::format("mean {:.0f}, p50 {:.0f}, p90 {:.0f}, p99 {:.0f}, longest {:.0f}", s.mean, s.p50, s.p90, s.p99,
                     s.max);
}

void print_trace(const NamedTrace& named, const TraceStatistics& s) {
  fmt::print("{} ({}, {} tokens a block)\n\n", named.trace.name, named.format, named.trace.block_tokens);
  print_property(
      "requests",
      fmt::format("{} in {}, {:.3g} a second; the busiest second has {}", s.requests, format_duration(s.duration_s),
                  s.duration_s > 0 ? static_cast<double>(s.requests) / s.duration_s : 0, s.busiest_second));
  print_property("gaps",
                 fmt::format("p50 {}, p90 {}, p99 {}; variation {:.2f} (Poisson: 1)", format_duration(s.gap_s.p50),
                             format_duration(s.gap_s.p90), format_duration(s.gap_s.p99), s.gap_variation));
  print_property("prompt tokens", lengths(s.prompt_tokens));
  print_property("answer tokens", lengths(s.answer_tokens));
  print_property("blocks",
                 fmt::format("{}, {} of them unique; {} of answers", s.blocks, s.unique_blocks, s.output_blocks));
  print_property("reuse", fmt::format("{:.2f} % of blocks, in {:.2f} % of requests, with a cache that never forgets",
                                      100 * s.hit_ratio_unbounded, percent(s.reusing_requests, s.requests)));
}

void print_distances(const TraceStatistics& s) {
  if (s.reuse_distances.empty()) return;
  fmt::print("\nother blocks between two uses: p50 {}, p90 {}, p99 {}\n{:>12}  {:>12}  {:>9}\n",
             distance_quantile(s.reuse_distances, 0.5), distance_quantile(s.reuse_distances, 0.9),
             distance_quantile(s.reuse_distances, 0.99), "FEWER THAN", "USES", "OF BLOCKS");
  for (const DistanceBin& bin : bins_of(s.reuse_distances)) {
    fmt::print("{:>12}  {:>12}  {:>7.2f} %\n", bin.below, bin.accesses, percent(bin.accesses, s.blocks));
  }
}

void print_windows(const TraceStatistics& s) {
  fmt::print("\nworking set, in windows of {}\n{:>12}  {:>9}  {:>10}  {:>10}  {:>10}\n", format_duration(s.window_s),
             "FROM", "REQUESTS", "BLOCKS", "UNIQUE", "NEW");
  for (const TraceWindow& w : s.windows) {
    fmt::print("{:>12}  {:>9}  {:>10}  {:>10}  {:>10}\n", format_duration(w.start_s), w.requests, w.blocks,
               w.unique_blocks, w.new_blocks);
  }
}

Status run_trace_info(const InfoOptions& options) {
  SHALE_ASSIGN(const TraceOptions reading, to_options(options.trace));
  for (const std::string& file : options.files) {
    SHALE_ASSIGN(const NamedTrace named, load_trace_watched(file, reading, options.output));
    const TraceStatistics statistics = trace_statistics(named.trace, options.window_s);
    if (options.output.json) {
      print_json(trace_json(named, statistics));
      continue;
    }
    if (file != options.files.front()) fmt::print("\n");
    print_trace(named, statistics);
    print_distances(statistics);
    print_windows(statistics);
  }
  return {};
}

}  // namespace

void add_trace_info(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "info",
                  "Tell what a trace is like: sizes, arrivals, reuse, and how its working set moves", run_trace_info);
  command.add_option("FILE", options->files, "Traces (docs/formats/trace.md), gzip or not; '-' is standard input")
      .required()
      .configurable(false);
  command.add_option("--window", options->window_s, "Seconds of a window of the working set; 0: a 24th of the trace")
      .type_name("SECONDS")
      .capture_default_str();
  add_trace_options(command, options->trace);
  add_output_options(command, options->output);
}

}  // namespace shale
