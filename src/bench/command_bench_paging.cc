#include <fmt/format.h>

#include <fstream>

#include "bench/bench_machine.h"
#include "bench/peers/llama_peer.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/units.h"
#include "microbench/paging.h"
#include "report/svg_chart.h"
#include "runtime/model_registry.h"
#include "runtime/requests.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct BenchPagingOptions {
  ModelChoice model;
  OutputOptions output;
  std::vector<std::string> methods = {"paged_eviction", "streaming", "knorm", "keydiff"};
  std::vector<std::uint32_t> budgets = {1024}, sequences = {16}, intervals = {128};
  std::uint32_t prompt_tokens = 1024, output_tokens = 1024;
  std::uint32_t join_tokens = 0;
  double pool_share = 1;
  std::optional<double> chunk_slowdown;
  BudgetPrefill prefill = BudgetPrefill::kWhole;
  Compaction compaction = Compaction::kRepack;
  bool prefix_cache = false, full_layers = false, keep_first_page = false;
  std::string figure, peer;
  bool tiny = false;
};

constexpr char kBenchPagingExamples[] =
    "Every load runs first with the full cache, then with each method at each budget; ratios are to the full cache.\n"
    "Tokens are random and answers are never ended early. tokens_per_second counts input and output tokens.\n"
    "\n"
    "Examples:\n"
    "  shale bench paging --methods paged_eviction,streaming --budgets 256,1024 --output-tokens 4096\n"
    "  shale bench paging --pool-share 0.25 --sequences 8 --figure pages.svg      the full cache has to queue\n"
    "  shale bench paging --prefix-cache on --budgets 256                         beside a prefix cache, as a "
    "server's\n"
    "  shale bench paging --join 6000 --sequences 8 --prompt-tokens 256\n"
    "  shale bench paging --prompt-tokens 4096 --output-tokens 64 --peer ~/llama.cpp/build/bin --json";

class PagingBench {
 public:
  PagingBench(const BenchPagingOptions& options, Model& model, const Tokenizer& tokenizer, const Machine& machine)
      : options_(options), model_(model), tokenizer_(tokenizer), machine_(machine) {}

  Status run(std::uint32_t sequences, const LlamaPeer* peer, const std::filesystem::path& file) {
    bench::PagingLoad load{.sequences = sequences,
                           .prompt_tokens = options_.prompt_tokens,
                           .output_tokens = options_.output_tokens,
                           .budget = std::nullopt,
                           .pool_share = options_.pool_share,
                           .prefix_cache = options_.prefix_cache,
                           .chunk_slowdown = options_.chunk_slowdown.value_or(0)};
    if (peer) {
      SHALE_ASSIGN(peer_rate_, peer->measure({SpeedTest::Kind::kBatch, std::min(load.output_tokens, 64u),
                                              load.prompt_tokens, sequences},
                                             file, static_cast<std::uint32_t>(model_.executor().threads()), true));
    }
    SHALE_TRY(warm_up(load));
    SHALE_ASSIGN(const bench::PagingResult full, bench::measure_paging(model_, tokenizer_, load));
    report(load, full, full);
    for (const std::uint32_t budget : options_.budgets) {
      for (const std::string& method : options_.methods) {
        for (const std::uint32_t interval : options_.intervals) {
          load.budget = KvBudgetOptions{.tokens = budget,
                                        .method = method,
                                        .prefill = options_.prefill,
                                        .interval = interval,
                                        .compaction = options_.compaction,
                                        .full_layers = options_.full_layers,
                                        .keep_first_page = options_.keep_first_page};
          SHALE_ASSIGN(const bench::PagingResult result, bench::measure_paging(model_, tokenizer_, load));
          report(load, result, full);
          if (method == "paged_eviction") break;  // evicts when pages are full
        }
      }
    }
    return {};
  }

  Status write_figure() const {
    if (options_.figure.empty()) return {};
    const Chart chart{.title = fmt::format("Pages in use while {} answer ({} tokens of prompt, {} of output)",
                                           options_.sequences.back(), options_.prompt_tokens, options_.output_tokens),
                      .x_name = "seconds",
                      .y_name = "share of the pool",
                      .lines = lines_};
    std::ofstream file(options_.figure);
    file << svg_file({&chart, 1});
    file.close();
    return file ? Status() : fail(ErrorCode::kIo, "cannot write {}", options_.figure);
  }

 private:
  // The first steps of each shape build graphs and touch memory.
  Status warm_up(bench::PagingLoad load) const {
    load.prompt_tokens = std::min(load.prompt_tokens, 600u);
    load.output_tokens = 4;
    load.pool_share = 1;
    SHALE_TRY(bench::measure_paging(model_, tokenizer_, load));
    return {};
  }

  void report(const bench::PagingLoad& load, const bench::PagingResult& result, const bench::PagingResult& full) {
    const std::string method = load.budget ? load.budget->method : "full";
    const std::uint32_t budget = load.budget ? load.budget->tokens : 0;
    const double ratio = result.tokens_per_second / full.tokens_per_second;
    lines_.push_back({load.budget ? fmt::format("{} {}", method, budget) : method, result.time_line});
    if (options_.output.json) return print_row(load, method, budget, result, ratio);
    if (!load.budget) {
      fmt::print("\n{} at once, {} + {} tokens, pool of {} pages\n", load.sequences, load.prompt_tokens,
                 load.output_tokens, result.pages_total);
      if (peer_rate_) fmt::print("llama.cpp decodes {:.1f} tokens/s at that depth\n", *peer_rate_);
      fmt::print("{:<18} {:>6}  {:>9} {:>6}  {:>9}  {:>8} {:>8} {:>8} {:>8}  {:>6} {:>5} {:>5}\n", "METHOD", "BUDGET",
                 "TOKENS/S", "RATIO", "DECODED/S", "TPOT", "ITL P50", "ITL P99", "TTFT", "PEAK", "END", "MOVED");
    }
    fmt::print("{:<18} {:>6}  {:>9.1f} {:>5.2f}x  {:>9.1f}  {:>8} {:>8} {:>8} {:>8}  {:>5.0f}% {:>5} {:>5}\n", method,
               budget ? fmt::format("{}", budget) : "", result.tokens_per_second, ratio,
               result.decode_tokens_per_second, format_duration(result.tpot_seconds),
               format_duration(result.itl_p50_seconds), format_duration(result.itl_p99_seconds),
               format_duration(result.ttft_seconds),
               100.0 * static_cast<double>(result.pages_peak) / static_cast<double>(result.pages_total),
               result.pages_end, result.preempted);
    std::fflush(stdout);
  }

  void print_row(const bench::PagingLoad& load, const std::string& method, std::uint32_t budget,
                 const bench::PagingResult& result, double ratio) const {
    Json row = {{"method", method},
                {"budget", budget ? Json(budget) : Json()},
                {"sequences", load.sequences},
                {"prompt_tokens", load.prompt_tokens},
                {"output_tokens", load.output_tokens},
                {"block_size", model_.page_shape().block_size},
                {"kv_cache_dtype", options_.model.kv_cache_dtype},
                {"pool_share", load.pool_share},
                {"prefix_cache", load.prefix_cache},
                {"tokens_per_second", result.tokens_per_second},
                {"decode_tokens_per_second", result.decode_tokens_per_second},
                {"ratio_to_full", ratio},
                {"tpot_seconds", result.tpot_seconds},
                {"itl_p50_seconds", result.itl_p50_seconds},
                {"itl_p99_seconds", result.itl_p99_seconds},
                {"ttft_seconds", result.ttft_seconds},
                {"pages_total", result.pages_total},
                {"pages_peak", result.pages_peak},
                {"pages_end", result.pages_end},
                {"fragmentation", result.fragmentation},
                {"budget_occupancy", result.budget_occupancy},
                {"preempted", result.preempted},
                {"budget_seconds", result.budget_seconds},
                {"kv_budget", to_json(result.budgets)},
                {"threads", model_.executor().threads()},
                {"model", model_.info().name},
                {"machine", machine_.json()}};
    if (load.budget) {
      row["interval"] = load.budget->interval;
      row["prefill"] = to_string(options_.prefill);
      row["compaction"] = to_string(options_.compaction);
      row["keep_first_page"] = options_.keep_first_page;
    }
    if (peer_rate_) {
      row["peer_decode_tokens_per_second"] = *peer_rate_;
      row["ratio_to_peer"] = result.decode_tokens_per_second / *peer_rate_;
    }
    print_json(row);
  }

  const BenchPagingOptions& options_;
  Model& model_;
  const Tokenizer& tokenizer_;
  const Machine& machine_;
  std::optional<double> peer_rate_;
  std::vector<ChartLine> lines_;
};

Status join(const BenchPagingOptions& options, Model& model, const Tokenizer& tokenizer, const Machine& machine) {
  bench::JoiningLoad load{.prompt_tokens = options.prompt_tokens, .joining_tokens = options.join_tokens};
  if (options.chunk_slowdown) load.chunk_slowdown = *options.chunk_slowdown;
  for (const std::uint32_t sequences : options.sequences) {
    load.sequences = sequences;
    SHALE_ASSIGN(const bench::JoiningResult result, bench::measure_joining(model, tokenizer, load));
    const double ratio = result.joined_itl_p99_seconds / result.itl_p99_seconds;
    if (options.output.json) {
      print_json({{"test", "join"},
                  {"sequences", sequences},
                  {"prompt_tokens", options.prompt_tokens},
                  {"join_tokens", options.join_tokens},
                  {"chunk_slowdown", load.chunk_slowdown},
                  {"joined_steps", result.joined_steps},
                  {"itl_p50_seconds", result.itl_p50_seconds},
                  {"itl_p99_seconds", result.itl_p99_seconds},
                  {"joined_itl_p50_seconds", result.joined_itl_p50_seconds},
                  {"joined_itl_p99_seconds", result.joined_itl_p99_seconds},
                  {"ratio_p99", ratio},
                  {"ttft_seconds", result.ttft_seconds},
                  {"model", model.info().name},
                  {"machine", machine.json()}});
    } else {
      fmt::print(
          "{} that decode, chunk slowdown {:g}: {} between two tokens (p99 {}); while a prompt of {} is computed {} "
          "(p99 {}, {:.2f}x), whose first token takes {}\n",
          sequences, load.chunk_slowdown, format_duration(result.itl_p50_seconds),
          format_duration(result.itl_p99_seconds), options.join_tokens, format_duration(result.joined_itl_p50_seconds),
          format_duration(result.joined_itl_p99_seconds), ratio, format_duration(result.ttft_seconds));
    }
  }
  return {};
}

Status run_bench_paging(const BenchPagingOptions& given) {
  BenchPagingOptions options = given;
  if (options.tiny) {
    options.budgets = {32};
    options.sequences = {2};
    options.prompt_tokens = 64;
    options.output_tokens = 24;
  }
  SHALE_ASSIGN(const auto file, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto model, open_model(options.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(file));
  if (options.prompt_tokens + options.output_tokens >= model->info().context_max) {
    return fail(ErrorCode::kInvalidArgument, "{} + {} tokens exceed the model's context of {}: give fewer",
                options.prompt_tokens, options.output_tokens, model->info().context_max);
  }
  const Machine machine = measure_machine();
  if (!options.output.json) {
    fmt::print("{}\n{}: prefill {}; decode {}\n", machine.text(), model->info().name, model->info().prefill_weights,
               model->info().decode_weights);
  }
  if (options.join_tokens > 0) {
    return join(options, *model, *tokenizer, machine);
  }
  std::optional<LlamaPeer> peer;
  if (!options.peer.empty()) {
    SHALE_ASSIGN(peer, LlamaPeer::open(options.peer));
  }
  PagingBench bench(options, *model, *tokenizer, machine);
  for (const std::uint32_t sequences : options.sequences)
    SHALE_TRY(bench.run(sequences, peer ? &*peer : nullptr, file));
  return bench.write_figure();
}

}  // namespace

void add_bench_paging(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "paging", "What KV budgets do to serving many at once", run_bench_paging);
  command.footer(kBenchPagingExamples);
  const auto several = [&](const char* name, auto& values, const char* text) {
    command.add_option(name, values, text).delimiter(',').range(1u, 1u << 20).type_name("N,...").capture_default_str();
  };
  command.add_option("--methods", options->methods, "paged_eviction, or [budget:]scorer")
      .delimiter(',')
      .type_name("METHOD,...")
      .capture_default_str();
  several("--budgets", options->budgets, "Tokens that a KV head keeps");
  several("--sequences", options->sequences, "Requests at once");
  several("--intervals", options->intervals, "Decoded tokens between two evictions of tokens");
  command.add_option("--prompt-tokens", options->prompt_tokens, "Input tokens of each request")
      .range(1u, 1u << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--output-tokens", options->output_tokens, "Output tokens of each request")
      .range(2u, 1u << 20)
      .type_name("N")
      .capture_default_str();
  Option join = command
                    .add_option("--join", options->join_tokens,
                                "Instead: what a prompt of so many tokens does to those who decode meanwhile")
                    .range(1u, 1u << 20)
                    .type_name("N");
  command.add_option("--pool-share", options->pool_share, "Pages of the pool, of those that the full cache needs")
      .range(0.01, 16.0)
      .type_name("SHARE")
      .capture_default_str();
  command
      .add_option("--chunk-slowdown", options->chunk_slowdown,
                  fmt::format("How many times as long a step may take with a chunk of a prompt; 0: chunks are whole, "
                              "which is the default but for --join, where it is {:g}",
                              bench::JoiningLoad().chunk_slowdown))
      .range(0.0, 1000.0)
      .type_name("TIMES");
  add_switch(command, "--prefix-cache", options->prefix_cache,
             "on: prompts stay in the pool for later requests, and it is full of others' prompts when the load begins");
  add_budget_prefill(command, "--prefill", options->prefill);
  add_compaction(command, options->compaction);
  command.add_flag("--kv-eviction-full-layers", options->full_layers,
                   "Evict from the full layers of a model with sliding windows");
  command.add_flag("--keep-first-page", options->keep_first_page, "paged_eviction never drops the first page");
  command.add_option("--figure", options->figure, "Write the pages in use over time as a picture")
      .type_name("FILE.svg");
  command
      .add_option("--peer", options->peer, "Folder with llama-batched-bench to compare decoding with; not with --join")
      .envname("SHALE_PEER")
      .type_name("FOLDER");
  for (const char* name : {"--methods", "--budgets", "--intervals", "--output-tokens", "--pool-share", "--prefix-cache",
                           "--prefill", "--compaction", "--kv-eviction-full-layers", "--keep-first-page", "--figure"}) {
    join.excludes(command.option(name));
  }
  command.add_flag("--tiny", options->tiny, "A small load, for a second: to see that it works");
  add_model_options(command, options->model);
  add_kv_cache_dtype_option(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
