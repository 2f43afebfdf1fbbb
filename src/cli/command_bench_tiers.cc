#include <fmt/format.h>

#include "bench/fio.h"
#include "bench/tiers_io.h"
#include "cli/bench_machine.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/first_token.h"
#include "cli/model_registry.h"
#include "core/units.h"

namespace shale {
namespace {

struct BenchTiersOptions {
  ModelChoice model;
  OutputOptions output;
  std::string folder, peer;
  std::uint32_t rounds = 5;
  bool tiny = false;
};

constexpr char kExamples[] =
    "The first table moves blobs to and from each tier, beside fio on the same folder where it is installed. The\n"
    "second asks a short question over a long context that each tier holds, beside llama-server.\n"
    "\n"
    "Examples:\n"
    "  shale bench tiers\n"
    "  shale bench tiers --peer ~/llama.cpp/build/bin --json";

Result<std::vector<bench::TierIoRow>> measure_io(const std::filesystem::path& folder, bool tiny) {
  bench::TierIoOptions options;
  if (tiny)
    options = {.units = {256 << 10}, .total_bytes = 2 << 20, .in_flight_bytes = 1 << 20, .rounds = 1, .fio_folder = {}};
  const RealClock clock;
  const auto memory = make_memory_tier(kUnlimited, clock);
  SHALE_ASSIGN(auto rows, bench::measure_tier_io(*memory, clock, options));

  if (bench::fio_installed() && !tiny) options.fio_folder = folder;
  if (!bench::fio_installed())
    print_note("shale: fio is not installed; nothing to compare the disk with (apt install fio)");
  SHALE_ASSIGN(const auto disk, make_disk_tier({.folder = folder / "io"}, clock));
  SHALE_ASSIGN(auto disk_rows, bench::measure_tier_io(*disk, clock, options));
  rows.insert(rows.end(), disk_rows.begin(), disk_rows.end());
  return rows;
}

// What fio reached with the same unit and operation; 0 where it did not run.
double fio_rate(const std::vector<bench::TierIoRow>& rows, const bench::TierIoRow& row) {
  for (const auto& other : rows) {
    if (other.tier == "fio" && other.unit_bytes == row.unit_bytes && other.operation == row.operation)
      return other.bytes_per_s;
  }
  return 0;
}

void print_io(const std::vector<bench::TierIoRow>& rows, const Machine& machine, bool json) {
  for (const auto& row : rows) {
    const double fio = row.tier == "disk" ? fio_rate(rows, row) : 0;
    if (json) {
      print_json({{"test", "io"},
                  {"tier", row.tier},
                  {"unit_bytes", row.unit_bytes},
                  {"operation", row.operation},
                  {"bytes_per_second", row.bytes_per_s},
                  {"latency_seconds", row.latency_s},
                  {"share_of_fio", fio > 0 ? Json(row.bytes_per_s / fio) : Json()},
                  {"machine", machine.json()}});
    } else {
      fmt::print("{:<8} {:<12} {:>9}: {:>10}, one alone {:>9}{}\n", row.tier, row.operation,
                 format_bytes(row.unit_bytes), format_rate(row.bytes_per_s), format_duration(row.latency_s),
                 fio > 0 ? fmt::format("; {:.0f} % of fio", 100 * row.bytes_per_s / fio) : "");
    }
  }
}

void print_first_tokens(const std::vector<FirstTokenRow>& rows, const FirstTokenOptions& options, Model& model,
                        const Machine& machine, bool json) {
  if (!json) {
    fmt::print("\nfirst token of a {}-token question over {} cached tokens, {}:\n", options.question_tokens,
               options.context_tokens, model.info().name);
  }
  for (const FirstTokenRow& row : rows) {
    const bool peer = row.peer_seconds > 0;
    if (json) {
      print_json({{"test", "first_token"},
                  {"from", row.from},
                  {"context_tokens", options.context_tokens},
                  {"question_tokens", options.question_tokens},
                  {"seconds", row.seconds},
                  {"peer_from", peer ? Json(row.peer_from) : Json()},
                  {"peer_seconds", peer ? Json(row.peer_seconds) : Json()},
                  {"ratio", peer ? Json(row.peer_seconds / row.seconds) : Json()},
                  {"threads", model.executor().threads()},
                  {"model", model.info().name},
                  {"machine", machine.json()}});
    } else {
      fmt::print("  {:<8} {:>9}{}\n", row.from, format_duration(row.seconds),
                 peer ? fmt::format("; llama-server, {}: {} ({:.2f}x)", row.peer_from,
                                    format_duration(row.peer_seconds), row.peer_seconds / row.seconds)
                      : "");
    }
  }
}

Status run(const BenchTiersOptions& options) {
  SHALE_ASSIGN(const auto file, resolve_model(options.model.model));
  SHALE_ASSIGN(const ScratchFolder scratch,
               ScratchFolder::create(options.folder.empty() ? cache_folder({}).parent_path()
                                                            : std::filesystem::path(options.folder)));
  const Machine machine = measure_machine();
  if (!options.output.json) fmt::print("{}\n\n", machine.text());

  SHALE_ASSIGN(const auto io, measure_io(scratch.path(), options.tiny));
  print_io(io, machine, options.output.json);

  FirstTokenOptions first{.rounds = options.rounds, .peer = options.peer, .scratch = scratch.path()};
  if (options.tiny) {
    first.context_tokens = 64;
    first.question_tokens = 4;
    first.rounds = 1;
  }
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(file));
  SHALE_ASSIGN(const auto model, open_model(options.model));
  SHALE_ASSIGN(const auto rows, measure_first_tokens(*model, *tokenizer, file, first, options.output));
  print_first_tokens(rows, first, *model, machine, options.output.json);
  return {};
}

}  // namespace

void add_bench_tiers(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "tiers", "Bytes per second of each tier, and the first token from each", run);
  command->footer(kExamples);
  command->add_option("--folder", options->folder, "Where to measure the disk (default: beside the cache folder)")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory);
  command->add_option("--peer", options->peer, "Folder with llama-server to compare with")
      ->envname("SHALE_PEER")
      ->type_name("FOLDER");
  command->add_option("--rounds", options->rounds, "Times that each first token is measured")
      ->check(CLI::Range(1, 100))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--tiny", options->tiny, "A few bytes and tokens, for a second: to see that it works");
  add_model_options(*command, options->model);
  add_output_options(*command, options->output);
}

}  // namespace shale
