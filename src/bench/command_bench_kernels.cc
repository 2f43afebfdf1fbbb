#include <fmt/format.h>

#include <string>
#include <string_view>

#include "bench/bench_machine.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/units.h"
#include "microbench/kernels_codec.h"
#include "microbench/kernels_paging.h"
#include "model/compute_threads.h"

namespace shale {
namespace {

struct BenchKernelsOptions {
  OutputOptions output;
  std::uint32_t threads = 0;
  std::string only;
  bool tiny = false;
};

constexpr char kBenchKernelsExamples[] =
    "A kernel's share is of the bandwidth that the same run measures with as many threads: of a plain read, and for\n"
    "encoding, decoding and loading of a plain copy. A fork copies a block table and counts its blocks.\n"
    "\n"
    "Examples:\n"
    "  shale bench kernels\n"
    "  shale bench kernels --only attention\n"
    "  shale bench kernels --threads 1 --json";

constexpr std::uint32_t kTinyDepth = 256;
constexpr std::size_t kTinyBytes = std::size_t{4} << 20;

std::vector<bench::KernelRow> measure(Executor& executor, std::string_view only, bool tiny) {
  auto rows = tiny ? bench::paging_rows(executor, only, kTinyDepth, kTinyBytes) : bench::paging_rows(executor, only);
  const auto more = tiny ? bench::codec_rows(executor, only, kTinyBytes) : bench::codec_rows(executor, only);
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

Status run_bench_kernels(const BenchKernelsOptions& options) {
  const Machine machine = measure_machine();
  if (!options.output.json) fmt::print("{}\n\n", machine.text());
  ComputeThreads threads(options.threads);
  for (const auto& row : measure(threads, options.only, options.tiny)) {
    if (options.output.json) {
      print_json({{"test", "kernel"},
                  {"kernel", row.name},
                  {"bytes", row.bytes},
                  {"seconds", row.seconds},
                  {"bytes_per_second", row.bytes / row.seconds},
                  {"share_of_read_bandwidth", row.share_of_read_bandwidth},
                  {"machine", machine.json()}});
    } else {
      fmt::print("{:<44} {:>11}  {:>4.0f} %\n", row.name, format_rate(row.bytes / row.seconds),
                 100 * row.share_of_read_bandwidth);
    }
  }
  return {};
}

}  // namespace

void add_bench_kernels(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "kernels", "Each kernel's share of the memory's read bandwidth", run_bench_kernels);
  command.footer(kBenchKernelsExamples);
  command.add_option("--threads", options->threads, "Threads that compute; 0: one a core")
      .envname("SHALE_THREADS")
      .range(0, 1024)
      .type_name("N")
      .capture_default_str();
  command
      .add_option("--only", options->only,
                  "Only kernels whose row has this in its name: knorm, int8, attention, fork …")
      .type_name("TEXT");
  command.add_flag("--tiny", options->tiny, "Small inputs, for a second: to see that it works");
  add_output_options(command, options->output);
}

}  // namespace shale
