#include <fmt/format.h>

#include "bench/bench_machine.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "core/child_process.h"
#include "core/units.h"
#include "microbench/fio.h"
#include "microbench/store_index.h"
#include "microbench/store_io.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct BenchStoreOptions {
  OutputOptions output;
  std::string folder;
  std::vector<std::string> methods = {"full", "int8", "kivi4"};
  std::vector<unsigned> threads = {1, 2, 4};
  std::uint64_t chunks = 1'000'000;
  std::uint32_t rounds = 3;
  bool tiny = false;
};

constexpr char kBenchStoreExamples[] =
    "Contexts are saved from, and loaded into, an engine's memory. Rates count keys and values as they are there,\n"
    "whatever they take at rest. Memory is compared with memcpy and the same checksum (XXH3-128), the disk with fio:\n"
    "requests of the same size, as many in flight, direct I/O. --chunks 0 leaves out the part about many chunks.\n"
    "\n"
    "Examples:\n"
    "  shale bench store\n"
    "  shale bench store --methods full --threads 1 --chunks 0 --json";

void print_store_io(const std::vector<bench::StoreIoRow>& rows, const Machine& machine, bool json) {
  for (const bench::StoreIoRow& row : rows) {
    const bool disk = row.tier == "disk", peer = row.peer_bytes_per_s > 0;
    const double share = peer ? row.bytes_per_s / row.peer_bytes_per_s : 0;
    const std::string_view peer_name = disk ? "fio" : "memcpy";
    if (json) {
      print_json({{"test", "io"},
                  {"operation", row.operation},
                  {"tier", row.tier},
                  {"method", row.method},
                  {"threads", row.threads},
                  {"bytes_per_second", row.bytes_per_s},
                  {"unit_bytes", disk ? Json(row.unit_bytes) : Json()},
                  {"peer", peer ? Json(peer_name) : Json()},
                  {"peer_bytes_per_second", peer ? Json(row.peer_bytes_per_s) : Json()},
                  {"share_of_peer", peer ? Json(share) : Json()},
                  {"machine", machine.json()}});
    } else {
      fmt::print("{:<6} {:<5} {:<8} {} thread{}: {:>10}{}{}\n", row.tier, row.operation, row.method, row.threads,
                 row.threads == 1 ? " " : "s", format_rate(row.bytes_per_s),
                 disk ? fmt::format(", units of {}", format_bytes(row.unit_bytes)) : "",
                 peer ? fmt::format("; {:.0f} % of {}", 100 * share, peer_name) : "");
    }
  }
}

void print_index(const bench::StoreIndexResult& index, const Machine& machine, bool json) {
  if (json) {
    print_json({{"test", "index"},
                {"chunks", index.chunks},
                {"extents", index.extents},
                {"save_seconds", index.save_s},
                {"bytes_per_chunk", index.bytes_a_chunk},
                {"index_bytes_per_chunk", index.index_bytes_a_chunk},
                {"lookup_keys", 512},
                {"lookup_seconds", index.lookup_s},
                {"lookup_p99_seconds", index.lookup_p99_s},
                {"open_after_close_seconds", index.open_after_close_s},
                {"open_after_kill_seconds", index.open_after_kill_s},
                {"chunks_after_kill", index.found_after_kill},
                {"machine", machine.json()}});
    return;
  }
  fmt::print("\n{} chunks in {} extents, saved in {}:\n", index.chunks, index.extents, format_duration(index.save_s));
  fmt::print("  memory a chunk       {:>9.0f} B, {:.0f} of them the index\n", index.bytes_a_chunk,
             index.index_bytes_a_chunk);
  fmt::print("  look-up of 512 keys  {:>11}, 99th percentile {}\n", format_duration(index.lookup_s),
             format_duration(index.lookup_p99_s));
  fmt::print("  opening after close  {:>11}\n", format_duration(index.open_after_close_s));
  fmt::print("  opening after kill   {:>11}, {} chunks found\n", format_duration(index.open_after_kill_s),
             index.found_after_kill);
}

Status run_bench_store(const BenchStoreOptions& options) {
  SHALE_ASSIGN(const ScratchFolder scratch,
               ScratchFolder::create(options.folder.empty() ? cache_folder({}).parent_path()
                                                            : std::filesystem::path(options.folder)));
  const RealClock clock;
  const bool json = options.output.json;
  const std::uint64_t chunks = options.tiny ? std::min<std::uint64_t>(options.chunks, 1024) : options.chunks;
  bench::StoreIndexResult index;
  if (chunks > 0) {  // first: it forks, which needs a process of one thread
    SHALE_ASSIGN(
        index,
        bench::measure_store_index(
            {.folder = scratch.path() / "index", .chunks = chunks, .lookups = options.tiny ? 20u : 2000u}, clock));
  }
  const Machine machine = measure_machine();
  if (!json) fmt::print("{}\n\n", machine.text());

  const bool fio = bench::fio_installed();
  if (!fio) print_note("shale: fio is not installed; nothing to compare the disk with (apt install fio)");
  bench::StoreIoOptions io{.folder = scratch.path(),
                           .methods = options.methods,
                           .threads = options.threads,
                           .rounds = static_cast<int>(options.rounds),
                           .fio = fio && !options.tiny};
  if (options.tiny) {
    io.contexts = 2;
    io.context_tokens = 256;
    io.rounds = 1;
  }
  SHALE_ASSIGN(const auto rows, bench::measure_store_io(io, clock));
  print_store_io(rows, machine, json);
  if (chunks > 0) print_index(index, machine, json);
  return {};
}

}  // namespace

void add_bench_store(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "store", "Loads and saves of the store, its index, and opening it", run_bench_store);
  command.footer(kBenchStoreExamples);
  command.add_option("--folder", options->folder, "Where to measure the disk (default: beside the cache folder)")
      .type_name("FOLDER")
      .existing_directory();
  command.add_option("--methods", options->methods, "How KV is stored")
      .delimiter(',')
      .type_name("METHOD,...")
      .capture_default_str();
  command.add_option("--threads", options->threads, "Threads that load, and that encode")
      .delimiter(',')
      .type_name("N,...")
      .range(1, 64)
      .capture_default_str();
  command.add_option("--chunks", options->chunks, "Chunks of the store that is opened and searched; 0: leave it out")
      .type_name("N")
      .capture_default_str();
  command.add_option("--rounds", options->rounds, "Times that each number is measured")
      .range(1, 100)
      .type_name("N")
      .capture_default_str();
  command.add_flag("--tiny", options->tiny, "A few chunks and tokens, for a second: to see that it works");
  add_output_options(command, options->output);
}

}  // namespace shale
