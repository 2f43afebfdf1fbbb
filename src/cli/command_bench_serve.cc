#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_registry.h"
#include "cli/option_types.h"
#include "cli/serve_child.h"
#include "cli/serve_options.h"
#include "cli/serve_report.h"
#include "cli/serve_run.h"
#include "cli/text_file.h"

namespace shale {
namespace {

constexpr char kNoReuse[] = "no-reuse";  // beside the planners: a server with --prefix-cache off
constexpr char kPoisson[] = "poisson";
constexpr char kFolder[] = "{folder}";  // in an option of serve: the server's own
constexpr std::size_t kCapacityRequests = 8;

struct Rate {
  double value = 1;
  bool to_prefill = false;  // else requests a second
};

struct Options {
  ServeOptions serve;
  std::vector<const CLI::Option*> passed_on;  // of serve's, as they are
  const CLI::Option* max_tokens = nullptr;    // one of these
  std::vector<std::string> files, planners = {"prefill", "lru", "shale"};
  std::vector<Rate> rates;
  std::size_t contexts_max = 0, requests = 100, seeds = 1;
  std::uint32_t context_tokens = 0;
  std::uint64_t seed = 1;
  double zipf = 1;
  std::string arrivals = kPoisson, folder, remote, html, requests_file;
  bool exact = false;
  OutputOptions output;
};

constexpr char kExamples[] =
    "Every planner, rate and seed gets a server of its own, `shale serve` on a free port of 127.0.0.1 with empty "
    "caches,\n"
    "and the same requests over HTTP: chats with a context as system message and one of its questions, streamed. A\n"
    "request is sent at its planned time however many are under way, and times count from then. `0.5x` is half of "
    "what\n"
    "the engine computes with nothing reused, which is measured first. The planner `no-reuse` is a server that reuses\n"
    "nothing (--prefix-cache off); `prefill` reuses the pool alone. Other options are the server's (`shale serve "
    "--help`);\n"
    "in them {folder} is a folder that is new for every server and removed after it.\n"
    "\n"
    "Examples:\n"
    "  shale bench serve --contexts nq.jsonl --contexts-max 48 --context-tokens 2000 --rate 0.5x,1x,2x --requests 200\n"
    "    --planner prefill,lru,shale --seeds 3 --memory 200MB --disk 600MB --throttle-disk hdd --html load.html\n"
    "  shale bench serve --contexts nq.jsonl --arrivals azure_llm_2023_conv.csv --rate 0.7 --planner no-reuse,shale";

Result<Rate> parse_rate_of_requests(const std::string& text) {
  Rate rate{.value = 0, .to_prefill = text.ends_with('x')};
  const std::string number = text.substr(0, text.size() - rate.to_prefill);
  if (!CLI::detail::lexical_cast(number, rate.value) || !(rate.value > 0 && rate.value < 1e6)) {
    return fail(ErrorCode::kInvalidArgument, "rate '{}': requests a second, or as 0.5x a multiple of the capacity",
                text);
  }
  return rate;
}

// One server, and where it keeps what.
struct Bed {
  ScratchFolder folder;
  std::optional<ScratchFolder> remote;
  ServeChild server;
};

class ServeBench {
 public:
  ServeBench(const Options& options, const Tokenizer& tokenizer) : options_(options), tokenizer_(tokenizer) {}

  Status prepare() {
    SHALE_ASSIGN(contexts_,
                 read_load_contexts(options_.files, options_.contexts_max, options_.context_tokens, tokenizer_));
    if (options_.arrivals != kPoisson) {
      SHALE_ASSIGN(trace_, read_arrivals(options_.arrivals, options_.requests));
    }
    if (trace_.empty() && options_.rates.empty()) {
      return fail(ErrorCode::kInvalidArgument, "--rate is needed: requests a second, or as 0.5x of the capacity");
    }
    return {};
  }

  // Requests a second that one after another can be computed, answers of one token, with nothing reused.
  Status measure_capacity() {
    Progress progress(options_.output, "measuring what can be computed");
    SHALE_ASSIGN(std::vector<LoadRequest> load, load_of(options_.seed));
    SHALE_ASSIGN(const Bed bed, start(kNoReuse));
    const std::size_t count = std::min(kCapacityRequests, load.size());
    const RealClock clock;
    double seconds = 0;
    for (std::size_t i = 0; i <= count; ++i) {  // the first warms up
      progress(i, count + 1);
      LoadRequest request = load[i == 0 ? 0 : (i - 1) * load.size() / count];
      request.answer_tokens = 1;
      const double start_s = clock.now_s();
      const ServedAnswer answer = ask_server(bed.server.port(), body_of(request), clock, start_s, kCapacityWaitS);
      SHALE_TRY(check_interrupt());
      if (!answer.error.empty())
        return fail(ErrorCode::kIo, "the server failed at the first requests: {}", answer.error);
      if (i == 0) continue;
      seconds += answer.pieces_s.front();
      capacity_tokens_ += answer.prompt_tokens;
    }
    bed.server.stop();
    capacity_ = static_cast<double>(count) / seconds;
    capacity_tokens_ /= seconds;
    return {};
  }

  std::string about() const {
    std::size_t tokens = 0;
    for (const LoadContext& context : contexts_) tokens += context.tokens.size();
    return fmt::format(
        "{}: {} contexts of {} tokens on average, Zipf {:g}, {} requests a run, {} arrivals\n"
        "capacity with nothing reused: {:.3g} requests a second, {:.0f} tokens a second\n",
        std::filesystem::path(options_.serve.serving.model.model).stem().string(), contexts_.size(),
        tokens / contexts_.size(), options_.zipf, options_.requests,
        trace_.empty() ? "Poisson" : std::filesystem::path(options_.arrivals).filename().string(), capacity_,
        capacity_tokens_);
  }

  std::vector<double> rates() const {
    std::vector<double> rates;
    for (const Rate& rate : options_.rates) rates.push_back(rate.to_prefill ? rate.value * capacity_ : rate.value);
    if (rates.empty()) rates.push_back(rate_of(trace_));
    return rates;
  }

  Result<ServeRow> run(const std::string& planner, double rate, std::uint64_t seed) {
    ServeRow row{.planner = planner,
                 .rate = rate,
                 .rate_to_prefill = rate / capacity_,
                 .seed = seed,
                 .load = {},
                 .answers = {},
                 .metrics = {}};
    SHALE_ASSIGN(std::vector<LoadRequest> load, load_of(seed));
    row.load = at_rate(std::move(load), rate);
    SHALE_ASSIGN(const Bed bed, start(planner));
    const ServeChild& server = bed.server;
    SHALE_ASSIGN(const Metrics before, server.metrics());
    Progress progress(options_.output, fmt::format("{} at {:.3g} a second, seed {}", planner, rate, seed));
    SHALE_ASSIGN(row.answers, run_load(server.port(), row.load,
                                       {.body = [this](const LoadRequest& request) { return body_of(request); },
                                        .progress = [&](std::size_t answered) { progress(answered, row.load.size()); },
                                        .give_up = [&] { server.kill(); }}));
    SHALE_ASSIGN(row.metrics, server.metrics());
    for (const auto& [name, value] : before) row.metrics[name] -= value;
    server.stop();
    return row;
  }

 private:
  static constexpr double kCapacityWaitS = 600;

  Result<std::vector<LoadRequest>> load_of(std::uint64_t seed) const {
    return make_load(
        contexts_, trace_,
        {.requests = options_.requests, .zipf = options_.zipf, .answer_tokens = answer_tokens_max(), .seed = seed});
  }

  // A trace's answers are as long as they were, unless a bound was asked for.
  std::uint32_t answer_tokens_max() const {
    const bool given = options_.max_tokens->count() > 0;
    return trace_.empty() || given ? options_.serve.server.api.max_tokens : ~std::uint32_t{0};
  }

  std::string body_of(const LoadRequest& request) const {
    const LoadContext& context = contexts_[request.context];
    return chat_body(text_of(context, request.context_tokens, tokenizer_), context.questions[request.question],
                     request.answer_tokens, options_.exact);
  }

  Result<Bed> start(const std::string& planner) const {
    const std::filesystem::path parent =
        options_.folder.empty() ? cache_folder({}).parent_path() : std::filesystem::path(options_.folder);
    SHALE_ASSIGN(ScratchFolder folder, ScratchFolder::create(parent));
    std::vector<std::string> words;
    for (const CLI::Option* option : options_.passed_on) {
      for (std::string value : option->results()) {
        if (const std::size_t at = value.find(kFolder); at != std::string::npos) {
          value.replace(at, std::size(kFolder) - 1, folder.path().string());
        }
        words.push_back(fmt::format("--{}={}", option->get_lnames().front(), value));
      }
    }
    if (planner == kNoReuse) {
      words.push_back("--prefix-cache=off");
    } else {
      words.push_back("--planner=" + planner);
    }
    words.push_back("--cache-dir=" + (folder.path() / "kv").string());
    const std::size_t waiting_max = std::min<std::size_t>(options_.serve.server.loop.queue_max, options_.requests);
    words.push_back(fmt::format("--queue={}", waiting_max));
    std::optional<ScratchFolder> remote;
    if (!options_.remote.empty()) {
      SHALE_ASSIGN(ScratchFolder created, ScratchFolder::create(options_.remote));
      remote.emplace(std::move(created));
      words.push_back("--remote=" + remote->path().string());
    }
    SHALE_ASSIGN(ServeChild server, ServeChild::start(words, folder.path()));
    return Bed{std::move(folder), std::move(remote), std::move(server)};
  }

  const Options& options_;
  const Tokenizer& tokenizer_;
  std::vector<LoadContext> contexts_;
  std::vector<TraceArrival> trace_;
  double capacity_ = 0, capacity_tokens_ = 0;  // requests and tokens a second
};

Status write_requests(const std::string& path, const ServeRow& row, bool first) {
  std::ofstream out(path, first ? std::ios::trunc : std::ios::app);
  for (const Json& request : request_rows(row)) out << request.dump() << '\n';
  if (!out.flush()) return fail(ErrorCode::kIo, "cannot write {}", path);
  return {};
}

Status run(const Options& options) {
  SHALE_ASSIGN(const auto file, resolve_model(options.serve.serving.model.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(file));
  ServeBench bench(options, *tokenizer);
  SHALE_TRY(bench.prepare());
  SHALE_TRY(bench.measure_capacity());
  if (!options.output.json) fmt::print("{}\n", bench.about());
  std::fflush(stdout);

  std::vector<ServeRow> rows;
  for (std::uint64_t seed = options.seed; seed < options.seed + options.seeds; ++seed) {
    for (const double rate : bench.rates()) {
      for (const std::string& planner : options.planners) {
        SHALE_ASSIGN(ServeRow row, bench.run(planner, rate, seed));
        if (options.output.json) print_json(to_json(row));
        std::fflush(stdout);
        if (!options.requests_file.empty()) SHALE_TRY(write_requests(options.requests_file, row, rows.empty()));
        rows.push_back(std::move(row));
      }
    }
  }
  if (!options.output.json) fmt::print("{}", text_tables(rows));
  if (!options.html.empty()) SHALE_TRY(write_file(options.html, html_page(rows, bench.about())));
  return {};
}

// What serve has and this command decides by itself, or has by the same name for several servers.
constexpr auto kOwn =
    std::to_array<const char*>({"--host", "--port", "--api-key", "--cache-dir", "--remote", "--planner"});

void add_passed_on(CLI::App& command, Options& options) {
  options.serve.server.api.max_tokens = 16;
  options.serve.server.loop.queue_max = 1024;  // an open loop does not come again
  add_serve_options(command, options.serve);
  CLI::Option* max_tokens = command.get_option("--max-tokens");
  max_tokens->description("Tokens of every answer; with --arrivals FILE, where given, at most");
  options.max_tokens = max_tokens;
  for (const char* name : kOwn) command.remove_option(command.get_option(name));
  for (const CLI::Option* option : std::as_const(command).get_options()) {
    const bool own = option == command.get_help_ptr() || option == command.get_option("--queue");
    if (!own) options.passed_on.push_back(option);
  }
}

}  // namespace

void add_bench_serve(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "serve", "The real server under load, planner by planner", run);
  command->footer(kExamples);
  add_passed_on(*command, *options);
  command->add_option("--contexts", options->files, "Contexts with questions, as `shale quality` reads them")
      ->delimiter(',')
      ->required()
      ->type_name("FILE,...");
  command->add_option("--contexts-max", options->contexts_max, "Contexts of each file; 0: all")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--context-tokens", options->context_tokens, "Longer contexts lose their end; 0: none does")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--rate",
          [options = options](const std::vector<std::string>& texts) {
            options->rates.clear();
            for (const std::string& text : texts) {
              auto rate = parse_rate_of_requests(text);
              if (!rate) throw CLI::ValidationError("--rate", rate.error().message);
              options->rates.push_back(*rate);
            }
          },
          "Requests a second, or as 0.5x a multiple of those that can be computed with nothing reused; a trace has its "
          "own")
      ->delimiter(',')
      ->type_name("R,...");
  command->add_option("--requests", options->requests, "Of each run")
      ->check(CLI::Range(1u, 100'000u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--arrivals", options->arrivals, "poisson, or a request trace: its times and lengths")
      ->type_name("poisson|FILE")
      ->capture_default_str();
  command->add_option("--zipf", options->zipf, "The context of rank r is asked about as 1 / r^S; 0: all alike")
      ->check(CLI::Range(0.0, 10.0))
      ->type_name("S")
      ->capture_default_str();
  command
      ->add_option(
          "--planner", options->planners,
          "Who decides what lies where, as --planner of `shale serve`; no-reuse: nobody, every prompt is computed")
      ->delimiter(',')
      ->check(known_planner(kNoReuse))
      ->type_name("PLANNER,...")
      ->default_str(fmt::format("{}", fmt::join(options->planners, ",")));
  command->add_option("--seeds", options->seeds, "Loads, from --seed on; every planner gets the same ones")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the first load")->type_name("N")->capture_default_str();
  command->add_flag("--exact", options->exact, "Requests accept bit-exact keys and values alone");
  command
      ->add_option("--folder", options->folder,
                   "Where servers keep their disk tiers (default: beside the cache folder)")
      ->type_name("FOLDER");
  command->add_option("--remote", options->remote, "Where servers keep their remote tiers (default: none)")
      ->type_name("FOLDER");
  command->add_option("--html", options->html, "Write a page with figures")->type_name("FILE")->group("Output");
  command->add_option("--requests-out", options->requests_file, "Write every request, one object a line")
      ->type_name("FILE")
      ->group("Output");
  add_output_options(*command, options->output);
}

}  // namespace shale
