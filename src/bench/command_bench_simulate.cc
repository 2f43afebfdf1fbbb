#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "bench/bench_machine.h"
#include "bench/bench_traces.h"
#include "bench/peers/libcachesim_peer.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/resources.h"
#include "core/units.h"
#include "microbench/simulate.h"

namespace shale {
namespace {

struct BenchSimulateOptions {
  OutputOptions output;
  std::vector<std::string> traces;
  std::string peer_python = "python3";
  std::uint64_t seed = 1;
  bool tiny = false;
};

double n_log_n(std::uint64_t n) {
  return static_cast<double>(n) * std::log2(static_cast<double>(std::max<std::uint64_t>(n, 2)));
}

// How much more a longer trace costs than n log n would have it: at most 1 where cost grows no faster.
class Growth {
 public:
  double of(const bench::SimulationSpeedRow& row) {
    if (row.lengthened == 1) shortest_[row.policy] = row;  // the last of them has the size that is lengthened
    const bench::SimulationSpeedRow& shortest = shortest_.at(row.policy);
    return row.seconds / shortest.seconds * n_log_n(shortest.blocks_requested) / n_log_n(row.blocks_requested);
  }

 private:
  std::map<std::string, bench::SimulationSpeedRow> shortest_;
};

Status bench_speed(const Trace& trace, const BenchSimulateOptions& options, const Machine& machine) {
  bench::SimulationSpeedOptions speed;
  if (options.tiny) speed = {.blocks = {10, 50}, .lengthened = {10}, .runs = 1};
  if (!options.output.json) {
    fmt::print("\n{}\n{:<18} {:>7} {:>10} {:>12} {:>12} {:>14}\n", trace.name, "POLICY", "LENGTH", "BLOCKS",
               "M BLOCKS/S", "BYTES/BLOCK", "OF N LOG N");
  }
  Growth growth;
  return bench::speed_rows(trace, speed, [&](const bench::SimulationSpeedRow& row) -> Status {
    const double of_n_log_n = growth.of(row);
    if (options.output.json) {
      print_json({{"test", "speed"},
                  {"trace", row.trace},
                  {"policy", row.policy},
                  {"lengthened", row.lengthened},
                  {"blocks", row.blocks},
                  {"blocks_requested", row.blocks_requested},
                  {"seconds", row.seconds},
                  {"blocks_per_second", row.blocks_per_second()},
                  {"bytes_per_block", row.bytes_per_block},
                  {"share_of_n_log_n", of_n_log_n},
                  {"machine", machine.json()}});
    } else {
      fmt::print("{:<18} {:>6}x {:>10} {:>12.1f} {:>12} {:>14}\n", row.policy, row.lengthened, row.blocks,
                 row.blocks_per_second() / 1e6, fmt::format("{:.0f}", row.bytes_per_block),
                 row.lengthened == 1 ? std::string("-") : fmt::format("{:.2f}", of_n_log_n));
    }
    return check_interrupt();
  });
}

Status bench_sweep(const std::vector<Trace>& traces, const BenchSimulateOptions& options, const Machine& machine) {
  std::vector<std::uint64_t> sizes = {1'000, 5'000, 10'000};
  if (options.tiny) sizes = {20};
  const std::size_t threads = usable_cores();
  const RealClock clock;
  SHALE_ASSIGN(const bench::SweepRow row, bench::sweep_row(traces, sizes, threads, clock));
  if (options.output.json) {
    print_json({{"test", "sweep"},
                {"runs", row.runs},
                {"blocks_requested", row.blocks_requested},
                {"threads", row.threads},
                {"seconds", row.seconds},
                {"machine", machine.json()}});
  } else {
    fmt::print("\na sweep of {} runs on {} threads: {}\n", row.runs, row.threads, format_duration(row.seconds));
  }
  return check_interrupt();
}

Status bench_peer(const BenchSimulateOptions& options, const Machine& machine) {
  const std::uint64_t requests = options.tiny ? 2'000 : 2'000'000, blocks = options.tiny ? 100 : 10'000;
  const Trace trace = bench::flat_trace(requests, requests / 10, options.seed);
  const auto peer = run_libcachesim(options.peer_python, trace, blocks);
  if (!peer && peer.error().code == ErrorCode::kCancelled) return std::unexpected(peer.error());
  if (!peer) print_note(fmt::format("no peer: {}", peer.error().message));
  if (!options.output.json) {
    fmt::print("\n{} requests of one block each, {} blocks cached\n{:<8} {:>10} {:>12} {:>10} {:>12} {:>7}\n", requests,
               blocks, "POLICY", "MISSES", "M BLOCKS/S", "PEER'S", "PEER'S M/S", "RATIO");
  }
  for (const char* policy : {"fifo", "lru", "sieve"}) {
    SHALE_ASSIGN(const SimulationResult ours, simulate(trace, {.policy = policy, .blocks = blocks}));
    const std::uint64_t misses = ours.blocks_requested - ours.blocks_reused;
    const PeerRun* theirs = peer && peer->contains(policy) ? &peer->at(policy) : nullptr;
    const double speed = static_cast<double>(requests) / ours.seconds;
    if (options.output.json) {
      print_json({{"test", "peer"},
                  {"policy", policy},
                  {"requests", requests},
                  {"blocks", blocks},
                  {"misses", misses},
                  {"seconds", ours.seconds},
                  {"peer_misses", theirs ? Json(theirs->misses) : Json()},
                  {"peer_seconds", theirs ? Json(theirs->seconds) : Json()},
                  {"ratio", theirs ? Json(theirs->seconds / ours.seconds) : Json()},
                  {"machine", machine.json()}});
    } else if (theirs != nullptr) {
      fmt::print("{:<8} {:>10} {:>12.1f} {:>10} {:>12.1f} {:>7.1f}\n", policy, misses, speed / 1e6, theirs->misses,
                 static_cast<double>(requests) / theirs->seconds / 1e6, theirs->seconds / ours.seconds);
    } else {
      fmt::print("{:<8} {:>10} {:>12.1f} {:>10} {:>12} {:>7}\n", policy, misses, speed / 1e6, "-", "-", "-");
    }
    if (theirs != nullptr && theirs->misses != misses) {
      return fail(ErrorCode::kMismatch, "{}: {} misses here, {} in libCacheSim", policy, misses, theirs->misses);
    }
  }
  return {};
}

Status run_bench_simulate(const BenchSimulateOptions& options) {
  SHALE_ASSIGN(const std::vector<Trace> traces, bench_traces(options.traces, options.tiny, options.seed));
  const Machine machine = measure_machine();
  if (!options.output.json) fmt::print("{}\n", machine.text());
  SHALE_TRY(bench_peer(options, machine));
  for (const Trace& trace : traces) SHALE_TRY(bench_speed(trace, options, machine));
  return bench_sweep(traces, options, machine);
}

}  // namespace

void add_bench_simulate(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "simulate", "Blocks a second of each policy, growth, memory, and libCacheSim beside",
                  run_bench_simulate);
  add_bench_traces(command, options->traces);
  command.add_option("--peer-python", options->peer_python, "Python that can import libcachesim")
      .type_name("PROGRAM")
      .capture_default_str();
  command.add_option("--seed", options->seed, "Of what is made up").type_name("N").capture_default_str();
  command.add_flag("--tiny", options->tiny, "Small traces only: to see that it works");
  add_output_options(command, options->output);
}

}  // namespace shale
