#include "loadtest/serve/serve_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/option_types.h"
#include "core/interrupt.h"
#include "core/units.h"
#include "loadtest/serve/serve_run.h"
#include "runtime/model_registry.h"

namespace shale {
namespace {

constexpr char kPoisson[] = "poisson";
constexpr std::string_view kFolder = "{folder}";  // in an option of serve: the server's own
constexpr std::size_t kCapacityRequests = 8;
constexpr double kAskedWaitS = 600;

Result<ServeBenchOptions::Rate> parse_rate(const std::string& text) {
  ServeBenchOptions::Rate rate{.value = 0, .to_prefill = text.ends_with('x')};
  const std::string number = text.substr(0, text.size() - rate.to_prefill);
  rate.value = parse_number(number).value_or(0);
  if (!(rate.value > 0 && rate.value < 1e6)) {
    return fail(ErrorCode::kInvalidArgument,
                "rate '{}': give requests a second, such as 2, or a multiple of the capacity, such as 0.5x", text);
  }
  return rate;
}

// What serve has and every benchmark of it decides by itself, has by the same name for several servers, or cannot use:
// its client has no key and speaks plain HTTP.
constexpr auto kOwn = std::to_array<const char*>(
    {"--host", "--port", "--served-model-name", "--api-key", "--tenants", "--tenant-requests", "--tenant-bytes",
     "--public-prefix", "--shared-cache", "--tls-cert", "--tls-key", "--cache-dir", "--remote", "--planner"});

void add_passed_on(Command command, ServeBenchOptions& options, const std::vector<const char*>& own) {
  options.serve.server.api.max_tokens = 16;
  options.serve.server.loop.queue_max = 1024;  // an open loop does not come again
  add_serve_options(command, options.serve);
  options.max_tokens = command.option("--max-tokens")
                           .description("Tokens of every answer; with --arrivals FILE, where given, at most")
                           .default_str(std::to_string(*options.serve.server.api.max_tokens));
  for (const char* name : kOwn) command.remove_option(name);
  for (const char* name : own) command.remove_option(name);
  for (const Option& option : command.options()) {
    if (option.name() != "--max-queue") options.passed_on.push_back(option);
  }
}

}  // namespace

Status ServeBench::read_contexts() {
  SHALE_ASSIGN(contexts_,
               read_load_contexts(options_.files, options_.contexts_max, options_.context_tokens, tokenizer_));
  if (options_.openings) std::ranges::for_each(contexts_, hold_back_opening);
  return {};
}

Status ServeBench::prepare() {
  if (contexts_.empty()) SHALE_TRY(read_contexts());
  if (options_.arrivals != kPoisson) {
    SHALE_ASSIGN(trace_, read_arrivals(options_.arrivals, chats_of(load_options(options_.seed))));
  }
  if (trace_.empty() && options_.rates.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--rate is missing: give requests a second, such as 2, or a multiple of the capacity, such as 0.5x");
  }
  return {};
}

Result<ServeBench::Capacity> ServeBench::measure_capacity() const {
  SHALE_ASSIGN(const std::vector<LoadRequest> load, load_of(options_.seed));
  SHALE_ASSIGN(const Bed bed, start(kNoReuse));
  const std::size_t count = std::min(kCapacityRequests, load.size());
  std::vector<LoadRequest> requests = {load.front()};  // warms up
  for (std::size_t i = 0; i < count; ++i) requests.push_back(load[i * load.size() / count]);
  SHALE_ASSIGN(const auto answers, ask(bed, std::move(requests), "measuring what can be computed"));
  bed.server.stop();
  double seconds = 0, tokens = 0;
  for (std::size_t i = 1; i < answers.size(); ++i) {
    seconds += answers[i].pieces_s.front();
    tokens += answers[i].prompt_tokens;
  }
  return Capacity{static_cast<double>(count) / seconds, tokens / seconds};
}

Result<std::vector<ServedAnswer>> ServeBench::ask(const Bed& bed, std::vector<LoadRequest> requests,
                                                  const char* what) const {
  Progress progress(options_.output, what);
  const RealClock clock;
  std::vector<ServedAnswer> answers;
  for (LoadRequest& request : requests) {
    progress(answers.size(), requests.size());
    // In the place of the chat so far: as long as that.
    const std::string stand_in = text_of(contexts_[request.context], request.answer_tokens, tokenizer_);
    const std::vector<std::string> heard(request.turn - 1, stand_in);
    request.answer_tokens = 1;
    const std::vector<LoadRequest> turns(request.turn, request);
    const double start_s = clock.now_s();
    answers.push_back(ask_server(bed.server.port(), body_of(turns, heard), clock, start_s, kAskedWaitS));
    SHALE_TRY(check_interrupt());
    const std::string& error = answers.back().error;
    if (!error.empty()) return fail(ErrorCode::kIo, "the server failed at the first requests: {}", error);
  }
  return answers;
}

std::string ServeBench::about() const {
  std::size_t tokens = 0;
  for (const LoadContext& context : contexts_) tokens += context.tokens.size();
  const std::string chats =
      options_.turns > 1 ? fmt::format(", chats of {} turns with pauses of {:g} s", options_.turns, options_.turn_gap_s)
                         : "";
  return fmt::format(
      "{}: {} contexts of {} tokens on average, Zipf {:g}, {} requests a run, {} arrivals{}\n"
      "capacity with nothing reused: {:.3g} requests a second, {:.0f} tokens a second\n",
      served_name(options_.serve.serving.model.model), contexts_.size(), tokens / contexts_.size(), options_.zipf,
      options_.requests, trace_.empty() ? "Poisson" : std::filesystem::path(options_.arrivals).filename().string(),
      chats, capacity_.requests_per_s, capacity_.tokens_per_s);
}

std::vector<double> ServeBench::rates() const {
  std::vector<double> rates;
  for (const auto& rate : options_.rates)
    rates.push_back(rate.to_prefill ? rate.value * capacity_.requests_per_s : rate.value);
  if (rates.empty()) rates.push_back(rate_of(trace_) * static_cast<double>(options_.turns));
  return rates;
}

Result<ServeRow> ServeBench::run(const Bed& bed, const std::string& planner, double rate, std::uint64_t seed) const {
  ServeRow row{.planner = planner,
               .rate = rate,
               .rate_to_prefill = rate / capacity_.requests_per_s,
               .seed = seed,
               .load = {},
               .answers = {},
               .metrics = {}};
  SHALE_ASSIGN(std::vector<LoadRequest> load, load_of(seed));
  const std::size_t planned = load.size();
  const ServeChild& server = bed.server;
  SHALE_ASSIGN(const Metrics before, server.metrics());
  Progress progress(options_.output, fmt::format("{} at {:.3g} a second, seed {}", planner, rate, seed));
  SHALE_ASSIGN(ServedLoad served,
               run_load(server.port(), at_rate(std::move(load), rate),
                        {.body = [this](const auto& turns, const auto& answers) { return body_of(turns, answers); },
                         .progress = [&](std::size_t answered) { progress(answered, planned); },
                         .give_up = [&] { server.kill(); }}));
  row.not_asked = planned - served.load.size();
  row.load = std::move(served.load);
  row.answers = std::move(served.answers);
  SHALE_ASSIGN(row.metrics, server.metrics());
  for (const auto& [name, value] : before) row.metrics[name] -= value;
  return row;
}

ServeLoadOptions ServeBench::load_options(std::uint64_t seed) const {
  return {.requests = options_.requests,
          .turns = options_.turns,
          .turn_gap_s = options_.turn_gap_s,
          .zipf = options_.zipf,
          .answer_tokens = answer_tokens_max(),
          .seed = seed};
}

Result<std::vector<LoadRequest>> ServeBench::load_of(std::uint64_t seed) const {
  return make_load(contexts_, trace_, load_options(seed));
}

// A trace's answers are as long as they were, unless a bound was asked for.
std::uint32_t ServeBench::answer_tokens_max() const {
  const bool given = options_.max_tokens->given();
  return trace_.empty() || given ? *options_.serve.server.api.max_tokens : ~std::uint32_t{0};
}

std::string ServeBench::body_of(std::span<const LoadRequest> turns, const std::vector<std::string>& answers) const {
  const LoadRequest& asked = turns.back();
  const LoadContext& context = contexts_[asked.context];
  return chat_body(text_of(context, asked.context_tokens, tokenizer_), dialogue_of(context, turns, answers),
                   asked.answer_tokens, options_.exact, options_.to_the_end);
}

Result<ServeBench::Bed> ServeBench::start(const std::string& planner, const std::vector<std::string>& more,
                                          const std::filesystem::path& metadata_store) const {
  const std::filesystem::path parent =
      options_.folder.empty() ? cache_folder({}).parent_path() : std::filesystem::path(options_.folder);
  SHALE_ASSIGN(ScratchFolder folder, ScratchFolder::create(parent));
  std::vector<std::string> words;
  for (const Option& option : options_.passed_on) {
    for (std::string value : option.values()) {
      const std::string& own = folder.path().native();
      for (std::size_t at = 0; (at = value.find(kFolder, at)) != std::string::npos; at += own.size()) {
        value.replace(at, kFolder.size(), own);
      }
      words.push_back(fmt::format("{}={}", option.name(), value));
    }
  }
  words.insert(words.end(), more.begin(), more.end());
  words.push_back(planner == kNoReuse ? std::string("--prefix-cache=off") : "--planner=" + planner);
  const std::filesystem::path cache_dir = folder.path() / "kv";
  if (options_.serve.serving.tiers.urls.empty()) words.push_back("--cache-dir=" + cache_dir.string());
  if (!metadata_store.empty()) {
    std::error_code error;
    std::filesystem::create_directory(cache_dir, error);
    std::filesystem::permissions(cache_dir, std::filesystem::perms::owner_all, error);
    if (!error) std::filesystem::copy_file(metadata_store, cache_dir / kMetadataStoreName, error);
    if (error) return fail(ErrorCode::kIo, "cannot copy {} to {}", metadata_store.string(), cache_dir.string());
  }
  const std::size_t waiting_max = std::min<std::size_t>(options_.serve.server.loop.queue_max, options_.requests);
  words.push_back(fmt::format("--max-queue={}", waiting_max));
  std::optional<ScratchFolder> remote;
  if (!options_.remote.empty()) {
    SHALE_ASSIGN(ScratchFolder created, ScratchFolder::create(options_.remote));
    remote.emplace(std::move(created));
    words.push_back("--remote=" + remote->path().string());
  }
  SHALE_ASSIGN(ServeChild server, ServeChild::start(words, folder.path()));
  return Bed{std::move(folder), std::move(remote), std::move(server)};
}

void add_serve_bench_options(Command command, ServeBenchOptions& options, const std::vector<const char*>& own) {
  add_passed_on(command, options, own);
  command.add_option("--contexts", options.files, "Contexts with questions, as `shale quality` reads them")
      .delimiter(',')
      .required()
      .type_name("FILE,...");
  command.add_option("--contexts-max", options.contexts_max, "Contexts of each file; 0: all")
      .type_name("N")
      .capture_default_str();
  command.add_option("--context-tokens", options.context_tokens, "Longer contexts lose their end; 0: none does")
      .type_name("N")
      .capture_default_str();
  command
      .add_parsed_list(
          "--rate",
          [&options](const std::vector<std::string>& texts) -> Status {
            options.rates.clear();
            for (const std::string& text : texts) {
              SHALE_ASSIGN(const auto rate, parse_rate(text));
              options.rates.push_back(rate);
            }
            return {};
          },
          "Requests a second, or as 0.5x a multiple of those that can be computed with nothing reused; a trace has its "
          "own")
      .delimiter(',')
      .type_name("R,...");
  command.add_option("--requests", options.requests, "Of each run")
      .range(1u, 100'000u)
      .type_name("N")
      .capture_default_str();
  command.add_option("--arrivals", options.arrivals, "poisson, or a request trace: its times and lengths")
      .type_name("poisson|FILE")
      .capture_default_str();
  command.add_option("--zipf", options.zipf, "The context of rank r is asked about as 1 / r^S; 0: all alike")
      .range(0.0, 10.0)
      .type_name("S")
      .capture_default_str();
  command.add_option("--seeds", options.seeds, "Loads, from --seed on; every planner gets the same ones")
      .range(1u, 1000u)
      .type_name("N")
      .capture_default_str();
  command.add_option("--seed", options.seed, "Of the first load").type_name("N").capture_default_str();
  command.add_flag("--exact", options.exact, "Requests accept bit-exact keys and values alone");
  command
      .add_option("--folder", options.folder, "Where servers keep their disk tiers (default: beside the cache folder)")
      .type_name("FOLDER");
  command.add_option("--remote", options.remote, "Where servers keep their remote tiers (default: none)")
      .type_name("FOLDER");
  add_output_options(command, options.output);
}

}  // namespace shale
