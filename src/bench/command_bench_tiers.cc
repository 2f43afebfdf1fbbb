#include <fmt/format.h>

#include "bench/bench_machine.h"
#include "bench/first_token.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/child_process.h"
#include "core/units.h"
#include "microbench/curl.h"
#include "microbench/fio.h"
#include "microbench/redis_benchmark.h"
#include "microbench/tcp_copy.h"
#include "microbench/tiers_io.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

struct BenchTiersOptions {
  ModelChoice model;
  OutputOptions output;
  std::string folder, peer;
  std::vector<std::string> tiers;
  std::uint32_t rounds = 5;
  bool tiny = false;
};

constexpr char kBenchTiersExamples[] =
    "The first table moves blobs to and from each tier, beside fio on the same folder where it is installed. The\n"
    "second asks a short question over a long context that each tier holds, beside llama-server. --tiers measures the\n"
    "tiers that it names in place of both, s3: beside eight parallel curls on the same objects, redis: beside a copy\n"
    "over a TCP connection of this machine to itself, and redis-benchmark with eight connections.\n"
    "\n"
    "Examples:\n"
    "  shale bench tiers\n"
    "  shale bench tiers --tiers 's3://bucket/bench?endpoint=http://localhost:8333'\n"
    "  shale bench tiers --tiers redis://localhost:6379\n"
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

// What else moves the same blobs, by what the tier is; empty where nothing does.
decltype(bench::TierIoOptions::beside) beside(const TierSpec& spec, const Tier& tier, const bench::TierIoOptions& io,
                                              const std::filesystem::path& scratch, const Clock& clock) {
  if (const auto* s3 = dynamic_cast<const S3Tier*>(&tier)) {
    if (!bench::curl_installed()) return {};
    return [&, s3](const std::vector<BlobId>& blobs, std::uint64_t unit_bytes) {
      return bench::measure_curl(*s3, blobs, unit_bytes, scratch, clock);
    };
  }
  if (spec.scheme != "redis" && spec.scheme != "rediss") return {};
  const bool installed = spec.scheme == "redis" && bench::redis_benchmark_installed();
  return [&, installed](const std::vector<BlobId>& blobs,
                        std::uint64_t unit_bytes) -> Result<std::vector<bench::TierIoRow>> {
    SHALE_ASSIGN(auto rows, bench::measure_tcp_copy(blobs.size(), unit_bytes, io.in_flight_bytes, clock));
    if (!installed) return rows;
    const auto others = bench::measure_redis_benchmark(spec.server, blobs.size(), unit_bytes);
    if (others) rows.insert(rows.end(), others->begin(), others->end());
    if (!others) print_note("shale: " + others.error().message);
    return rows;
  };
}

// Tiers that were named; blobs as large as the parts of extents are.
Result<std::vector<bench::TierIoRow>> measure_named(const BenchTiersOptions& options,
                                                    const std::filesystem::path& scratch) {
  const RealClock clock;
  bench::TierIoOptions io{
      .units = {1 << 20, 4 << 20}, .total_bytes = 512 << 20, .in_flight_bytes = 64 << 20, .fio_folder = {}};
  io.rounds = static_cast<int>(options.rounds);
  if (options.tiny)
    io = {.units = {256 << 10}, .total_bytes = 2 << 20, .in_flight_bytes = 1 << 20, .rounds = 1, .fio_folder = {}};
  SHALE_ASSIGN(const auto specs, parse_tiers({options.tiers.begin(), options.tiers.end()}));
  std::vector<bench::TierIoRow> rows;
  for (const TierSpec& spec : specs) {
    SHALE_ASSIGN(const auto tier, make_tier(spec, clock));
    io.beside = beside(spec, *tier, io, scratch, clock);
    SHALE_ASSIGN(auto of_tier, bench::measure_tier_io(*tier, clock, io));
    std::ranges::move(of_tier, std::back_inserter(rows));
  }
  return rows;
}

// What was measured beside a row, in the same round.
std::vector<const bench::TierIoRow*> peers_of(const std::vector<bench::TierIoRow>& rows, const bench::TierIoRow& row) {
  std::vector<const bench::TierIoRow*> peers;
  for (const bench::TierIoRow& other : rows) {
    if (other.beside == row.tier && other.unit_bytes == row.unit_bytes && other.operation == row.operation) {
      peers.push_back(&other);
    }
  }
  return peers;
}

void print_tiers_io(const std::vector<bench::TierIoRow>& rows, const Machine& machine, bool json) {
  for (const auto& row : rows) {
    Json shares = Json::object();
    std::string text;
    for (const bench::TierIoRow* peer : peers_of(rows, row)) {
      const double share = row.bytes_per_s / peer->bytes_per_s;
      shares[peer->tier] = share;
      text += fmt::format("{} {:.0f} % of {}", text.empty() ? ";" : ",", 100 * share, peer->tier);
    }
    if (json) {
      print_json({{"test", "io"},
                  {"tier", row.tier},
                  {"unit_bytes", row.unit_bytes},
                  {"operation", row.operation},
                  {"bytes_per_second", row.bytes_per_s},
                  {"latency_seconds", row.latency_s},
                  {"beside", row.beside.empty() ? Json() : Json(row.beside)},
                  {"share_of_peers", shares},
                  {"machine", machine.json()}});
    } else {
      fmt::print("{:<15} {:<12} {:>9}: {:>10}, one alone {:>9}{}\n", row.tier, row.operation,
                 format_bytes(row.unit_bytes), format_rate(row.bytes_per_s), format_duration(row.latency_s), text);
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

Status run_bench_tiers(const BenchTiersOptions& options) {
  SHALE_ASSIGN(const ScratchFolder scratch,
               ScratchFolder::create(options.folder.empty() ? cache_folder({}).parent_path()
                                                            : std::filesystem::path(options.folder)));
  const Machine machine = measure_machine();
  if (!options.output.json) fmt::print("{}\n\n", machine.text());
  if (!options.tiers.empty()) {
    SHALE_ASSIGN(const auto named, measure_named(options, scratch.path()));
    print_tiers_io(named, machine, options.output.json);
    return {};
  }
  SHALE_ASSIGN(const auto file, resolve_model(options.model.model));

  SHALE_ASSIGN(const auto io, measure_io(scratch.path(), options.tiny));
  print_tiers_io(io, machine, options.output.json);

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

void add_bench_tiers(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "tiers", "Bytes per second of each tier, and the first token from each", run_bench_tiers);
  command.footer(kBenchTiersExamples);
  command.add_option("--folder", options->folder, "Where to measure the disk (default: beside the cache folder)")
      .type_name("FOLDER")
      .existing_directory();
  command.add_option("--peer", options->peer, "Folder with llama-server to compare with")
      .envname("SHALE_PEER")
      .type_name("FOLDER");
  add_tiers(command, "--tiers", options->tiers, "Measure these instead");
  command.add_option("--rounds", options->rounds, "Times that each first token, or named tier, is measured")
      .range(1, 100)
      .type_name("N")
      .capture_default_str();
  command.add_flag("--tiny", options->tiny, "A few bytes and tokens, for a second: to see that it works");
  add_model_options(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
