#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <limits>

#include "cli/command.h"
#include "cli/option_types.h"
#include "core/child_process.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/version.h"
#include "loadtest/placement/placement_cells.h"
#include "loadtest/placement/placement_quality.h"
#include "loadtest/placement/placement_report.h"
#include "loadtest/placement/placement_rest.h"
#include "loadtest/serve/serve_bench.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

constexpr char kShale[] = "shale";
constexpr double kCellLookS = 0.2;
constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kWrittenWithinS = 600;  // after the contexts were asked once
// Looks in a row: a server says only twice a second what it does, and what has been written may be moved next.
constexpr int kLooksAtRest = 6;

// The benchmark's own; and what loses something that no form of a context tells of, so that it could not be rated.
constexpr auto kDecided =
    std::to_array<const char*>({"--alpha", "--memory-size", "--disk-size", "--tiers", "--kv-budget", "--kv-eviction",
                                "--keep-first-page", "--kv-eviction-full-layers", "--kv-eviction-prefill",
                                "--kv-eviction-interval", "--compaction", "--kv-cache-dtype"});

struct BenchPlacementOptions {
  ServeBenchOptions bench;
  std::vector<std::string> policies = {"prefill", "lru", "fixed:kivi4", "shale"};
  std::vector<double> alphas = {1};
  double memory_share = 0.1, disk_share = 0.3, settle_s = 5;
  bool paper_tiers = false;
  std::string out, html;
};

constexpr char kBenchPlacementExamples[] =
    "Every policy, rate and seed is one cell: a server of its own, which is asked about every context once, by a\n"
    "question that is not asked again, stores what it makes of that, and then gets the same timed requests as all\n"
    "others. Afterwards each answer is rated: over the very form of the context that served it, how much of the exact "
    "answer is still given (AGREEMENT, "
    "teacher-forced,\n"
    "1 for exact copies); and how alike the texts are (F1, COSINE), which also differ where nothing was lost, because\n"
    "batches have other shapes: the row of `prefill` says by how much. GOLD is F1 with the accepted answers.\n"
    "A server rests until all is written where it is to lie, on the slowest tier too, and then for --settle. Rows of\n"
    "different rests are shown with them (REST).\n"
    "Capacities are shares of what all contexts take exact. With --paper-tiers the disk reads an exact context as "
    "fast\n"
    "as it is computed, and the remote a third as fast.\n"
    "Cells go into --out, one JSON object a line; what lies there already is not run again.\n"
    "\n"
    "Examples:\n"
    "  shale bench placement --contexts xquad_en.jsonl,squality.jsonl --contexts-max 32 --context-tokens 2000\n"
    "    --rate 0.7x --requests 256 --zipf 0 --policy prefill,lru,fixed:kivi4,fixed:keydiff@0.5,shale --alpha "
    "0.3,1,3\n"
    "    --paper-tiers --remote /tmp --out cells.jsonl --html placement.html";

struct Policy {
  std::string name, planner;
  std::optional<double> alpha;
};

std::vector<Policy> policies_of(const BenchPlacementOptions& options) {
  std::vector<Policy> policies;
  for (const std::string& planner : options.policies) {
    if (planner != kShale) {
      policies.push_back({planner, planner, std::nullopt});
      continue;
    }
    for (const double alpha : options.alphas) {
      policies.push_back({fmt::format("shale, alpha {:g}", alpha), planner, alpha});
    }
  }
  return policies;
}

// All that a cell's metrics depend on beside policy, rate and seed. Cells have contexts and questions by number, so
// these are the very ones.
std::string setting_of(const BenchPlacementOptions& options, const Hash128& model,
                       std::span<const LoadContext> contexts) {
  const ServeBenchOptions& bench = options.bench;
  std::vector<std::string> words = {"cells 8", bench.serve.serving.model.model};  // 8: what a cell holds, and of what
  words.push_back(fmt::format("model {}", model.hex()));
  for (const std::string& file : bench.files) words.push_back(std::filesystem::path(file).filename().string());
  words.push_back(fmt::format("contexts {}", hash_of(contexts).hex()));
  words.push_back(fmt::format("{} contexts of {} tokens, {} requests, zipf {:g}, shares {:g} and {:g}{}{}{}",
                              bench.contexts_max, bench.context_tokens, bench.requests, bench.zipf,
                              options.memory_share, options.disk_share, options.paper_tiers ? ", paper's tiers" : "",
                              bench.remote.empty() ? "" : ", remote", bench.exact ? ", exact" : ""));
  for (const Option& option : bench.passed_on) {
    if (option.given()) words.push_back(fmt::format("{}={}", option.name(), fmt::join(option.values(), ",")));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

// The version, and which build of it: cells of two builds are told apart.
Result<std::string> program_name() {
  SHALE_ASSIGN(const std::filesystem::path path, own_program());
  SHALE_ASSIGN(const std::string bytes, read_file(path));
  return fmt::format("{} {}", kVersion, hash128(std::as_bytes(std::span(bytes))).hex().substr(0, 8));
}

std::filesystem::path metadata_store_of(const BenchPlacementOptions& options) {
  return options.out + ".metadata_store";
}

class PlacementBench {
 public:
  PlacementBench(const BenchPlacementOptions& options, ServeBench& bench, PlacementFile& file)
      : options_(options), bench_(bench), file_(file) {}

  Status prepare(std::uint64_t token_bytes) {
    SHALE_TRY(bench_.prepare());
    SHALE_ASSIGN(program_, program_name());
    SHALE_TRY(use_capacity());
    std::uint64_t tokens = 0;
    for (const LoadContext& context : bench_.contexts()) tokens += context.tokens.size();
    const auto bytes = static_cast<double>(tokens * token_bytes);
    for (const auto& [name, value] : {std::pair("token_bytes", static_cast<double>(token_bytes)),
                                      std::pair("memory_bytes", options_.memory_share * bytes),
                                      std::pair("disk_bytes", options_.disk_share * bytes)}) {
      if (!file_.value(name)) SHALE_TRY(file_.add(name, value));
    }
    const auto kib = [](double of) { return fmt::format("{:.0f}KiB", of / 1024); };
    words_ = {"--memory-size=" + kib(options_.memory_share * bytes), "--disk-size=" + kib(options_.disk_share * bytes)};
    if (!options_.paper_tiers) return {};
    const double bytes_per_s = *file_.value("tokens_per_s") * static_cast<double>(token_bytes);
    if (options_.disk_share > 0) words_.push_back(fmt::format("--throttle-disk={:.0f}KB/s,0ms", bytes_per_s / 1000));
    if (!options_.bench.remote.empty()) {
      words_.push_back(fmt::format("--throttle-remote={:.0f}KB/s,0ms", bytes_per_s / 3000));
    }
    return {};
  }

  Status run_cells() {
    const ServeBenchOptions& with = options_.bench;
    for (std::uint64_t seed = with.seed; seed < with.seed + with.seeds; ++seed) {
      for (const double rate : bench_.rates()) {
        for (const Policy& policy : policies_of(options_)) {
          const double to_prefill = rate / *file_.value("requests_per_s");
          SHALE_ASSIGN(const bool measured, file_.has(policy.name, to_prefill, seed, options_.settle_s));
          if (!measured) SHALE_TRY(run_cell(policy, rate, seed));
        }
      }
    }
    return {};
  }

 private:
  Status use_capacity() {
    if (!file_.value("tokens_per_s")) {
      SHALE_ASSIGN(const ServeBench::Capacity capacity, bench_.measure_capacity());
      SHALE_TRY(file_.add("requests_per_s", capacity.requests_per_s));
      SHALE_TRY(file_.add("tokens_per_s", capacity.tokens_per_s));
    }
    bench_.use({.requests_per_s = *file_.value("requests_per_s"), .tokens_per_s = *file_.value("tokens_per_s")});
    return {};
  }

  // Until `done` says so of the server's metrics, or so long; whether it did.
  template <class Done>
  Result<bool> wait_until(const ServeBench::Bed& bed, double seconds, const char* what, Done done) const {
    const Progress progress(options_.bench.output, what);
    const RealClock clock;
    const double end_s = clock.now_s() + seconds;
    while (clock.now_s() < end_s) {
      SHALE_TRY(check_interrupt());
      SHALE_ASSIGN(const Metrics metrics, bed.server.metrics());
      if (done(metrics)) return true;
      clock.sleep_until_s(clock.now_s() + kCellLookS);
    }
    return false;
  }

  // Until everything lies where it is to lie, on the slowest tier, too; whether it does.
  Result<bool> let_write(const ServeBench::Bed& bed) const {
    return wait_until(bed, kWrittenWithinS, "writing to every tier", [rested = 0](const Metrics& metrics) mutable {
      rested = unrest_of(metrics).empty() ? rested + 1 : 0;
      return rested >= kLooksAtRest;
    });
  }

  std::vector<std::string> words_of(const Policy& policy) const {
    std::vector<std::string> words = words_;
    if (policy.alpha) words.push_back(fmt::format("--alpha={:g}", *policy.alpha));
    return words;
  }

  // What is known of the model, measured once for all cells: every server begins with a copy.
  Result<std::filesystem::path> metadata_store() {
    const std::filesystem::path path = metadata_store_of(options_);
    if (std::filesystem::exists(path)) return path;
    SHALE_ASSIGN(const ServeBench::Bed bed, bench_.start(kShale, words_));
    double seconds = 0, failed = 0;
    SHALE_TRY(wait_until(bed, kForever, "measuring the model's prior", [&](const Metrics& metrics) {
      seconds = value_of(metrics, "shale_profile_seconds_total{work=\"prior\"}");
      failed = value_of(metrics, "shale_profile_failed_total");
      return value_of(metrics, "shale_prior_texts_left") == 0;
    }));
    if (failed > 0) print_note(fmt::format("the model's prior lacks {} texts, which could not be measured", failed));
    bed.server.stop();
    std::error_code error;
    const std::filesystem::path unfinished = path.string() + ".new";  // what is there under its name is whole
    std::filesystem::copy_file(bed.cache_dir() / kMetadataStoreName, unfinished,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (!error) std::filesystem::rename(unfinished, path, error);
    if (error) return fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), error.message());
    SHALE_TRY(file_.add("prior_seconds", seconds));
    return path;
  }

  Status run_cell(const Policy& policy, double rate, std::uint64_t seed) {
    const bool weighs = policy.alpha && options_.bench.serve.profile != "never";
    SHALE_ASSIGN(const std::filesystem::path known, weighs ? metadata_store() : Result<std::filesystem::path>());
    SHALE_ASSIGN(const ServeBench::Bed bed, bench_.start(policy.planner, words_of(policy), known));
    SHALE_TRY(bench_.ask(bed, opening_load(bench_.contexts()), "asking about each context once"));
    SHALE_ASSIGN(const bool written, let_write(bed));
    if (!written) print_note(fmt::format("{}: timed while its server still writes", policy.name));
    SHALE_TRY(wait_until(bed, options_.settle_s, "settling", [](const Metrics&) { return false; }));
    SHALE_ASSIGN(const ServeRow row, bench_.run(bed, policy.name, rate, seed));
    bed.server.stop();
    PlacementCell cell = cell_of(policy.name, row);
    cell.settle_s = options_.settle_s;
    cell.written = written;
    cell.program = program_;
    return file_.add(std::move(cell));
  }

  const BenchPlacementOptions& options_;
  ServeBench& bench_;
  PlacementFile& file_;
  std::vector<std::string> words_;
  std::string program_;
};

Status run_bench_placement(const BenchPlacementOptions& options) {
  const ServeBenchOptions& with = options.bench;
  SHALE_ASSIGN(const auto model_file, resolve_model(with.serve.serving.model.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(model_file));
  ServeBench bench(with, *tokenizer);
  SHALE_TRY(bench.read_contexts());
  Hash128 fingerprint;
  std::uint64_t token_bytes = 0;
  {
    SHALE_ASSIGN(const auto model, open_model(with.serve.serving.model));
    fingerprint = model->fingerprint();
    token_bytes = model->page_shape().token_bytes();
  }
  SHALE_ASSIGN(PlacementFile file,
               PlacementFile::open(options.out, setting_of(options, fingerprint, bench.contexts())));
  std::error_code error;
  if (file.is_new()) std::filesystem::remove(metadata_store_of(options), error);
  if (error) return fail(ErrorCode::kIo, "cannot remove {}: {}", metadata_store_of(options).string(), error.message());
  PlacementBench cells(options, bench, file);
  SHALE_TRY(cells.prepare(token_bytes));
  SHALE_TRY(cells.run_cells());

  ServingOptions serving_options = with.serve.serving;
  serving_options.store = false;
  serving_options.tiers = {};          // the servers' own
  serving_options.pool_bytes.reset();  // the servers' was for a load, this one is for a context beside its forms
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, with.output));
  {
    Progress progress(with.output, "rating answers");
    SHALE_TRY(measure_quality(serving->engine(), bench.contexts(), *with.serve.server.api.max_tokens, file,
                              [&](std::size_t done, std::size_t total) { progress(done, total); }));
  }
  SHALE_ASSIGN(AnswerMetrics metrics, AnswerMetrics::open(serving->model().executor()));
  SHALE_ASSIGN(const auto summaries, summaries_of(file, bench.contexts(), metrics));
  if (with.output.json) {
    for (const PlacementSummary& summary : summaries) print_json(to_json(summary));
  } else {
    fmt::print("{}\n{}", bench.about(), placement_tables(summaries, bench.contexts()));
  }
  if (!options.html.empty()) {
    SHALE_TRY(write_file(options.html, placement_page(summaries, bench.contexts(), bench.about())));
  }
  return {};
}

}  // namespace

void add_bench_placement(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "placement", "What policies make of quality and waiting, on the real server",
                  run_bench_placement);
  command.footer(kBenchPlacementExamples);
  options->bench.to_the_end = false;
  options->bench.openings = true;
  options->bench.zipf = 0;
  add_serve_bench_options(command, options->bench, {kDecided.begin(), kDecided.end()});
  command.remove_option("--arrivals");  // its lengths would cut contexts and answers that are rated whole
  command.option("--max-tokens").description("Tokens of every answer");
  command.option("--rate").description(
      "Requests a second, or as 0.5x a multiple of those that can be computed with nothing reused");
  command.add_option("--policy", options->policies, "Policies, as --planner of `shale bench serve`")
      .delimiter(',')
      .check(known_planner(kNoReuse))
      .type_name("PLANNER,...")
      .default_str(fmt::format("{}", fmt::join(options->policies, ",")));
  command.add_option("--alpha", options->alphas, "Seconds of waiting that one unit of quality is worth to `shale`")
      .delimiter(',')
      .type_name("S,...")
      .capture_default_str();
  command.add_option("--memory-share", options->memory_share, "Capacity of the memory tier, of all exact contexts")
      .range(0.0, 100.0)
      .type_name("SHARE")
      .capture_default_str();
  command.add_option("--disk-share", options->disk_share, "Capacity of the disk tier, likewise")
      .range(0.0, 100.0)
      .type_name("SHARE")
      .capture_default_str();
  Option paper = command.add_flag("--paper-tiers", options->paper_tiers,
                                  "Emulate tiers as slow beside computing as the papers' were");
  for (const char* name : {"--throttle-disk", "--throttle-remote"}) paper.excludes(command.option(name));
  command
      .add_option("--settle", options->settle_s,
                  "Seconds of rest before the timed requests, once everything is written")
      .range(0.0, 86400.0)
      .type_name("S")
      .capture_default_str();
  command.add_option("--out", options->out, "Cells and ratings, one JSON object a line; goes on where it stopped")
      .required()
      .type_name("FILE")
      .group("Output");
  command.add_option("--html", options->html, "Write a page with charts").type_name("FILE").group("Output");
}

}  // namespace shale
