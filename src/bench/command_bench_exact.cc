#include <fmt/format.h>

#include <array>
#include <random>
#include <ranges>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/child_process.h"
#include "core/interrupt.h"
#include "core/user_folder.h"
#include "extents/store_tiers.h"
#include "loadtest/serve/serve_load.h"
#include "runtime/engine_stack.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct BenchExactOptions {
  ModelChoice model;
  OutputOptions output;
  std::vector<std::string> contexts;
  std::size_t contexts_max = 0, questions_max = 1;
  std::uint32_t context_tokens = 400, answer_tokens = 24, beside = 7;
};

constexpr char kBenchExactExamples[] =
    "Every question of every context is answered once with nothing cached, alone and uncut; then in each of these\n"
    "ways, and each answer is compared token by token with that one. It fails where any differs.\n"
    "\n"
    "  stored    with nothing cached yet, while what is computed is stored\n"
    "  pool      from the block pool\n"
    "  memory    from a tier, the block pool being empty; so disk and remote\n"
    "  beside    the same, beside other requests, of which some do not demand exact KV\n"
    "  cut       with nothing cached, in chunks of some other length\n"
    "  turn      as the second turn of a chat: once its first answer demanded exact KV, once it did not\n"
    "  thread    with nothing cached, on one thread, where the same weights run there\n"
    "\n"
    "Examples:\n"
    "  shale bench exact --contexts nq_multidoc20.jsonl,squality.jsonl --contexts-max 20";

constexpr std::array kWays = {"stored", "pool", "memory", "disk", "remote", "beside", "cut", "turn", "thread"};
enum Way : std::size_t { kStored, kPool, kMemory, kDisk, kRemote, kBeside, kCut, kTurn, kThread };

constexpr std::uint64_t kPoolBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kTierBytes = std::uint64_t{2} << 30;

// An engine with one tier below its pool, over a model that others use, too.
Result<std::unique_ptr<EngineStack>> open_stack(Model& model, const Tokenizer& tokenizer, const TierSpec& tier,
                                                const Clock& clock) {
  SHALE_ASSIGN(auto tiers, open_store_tiers(std::vector{tier}, clock));
  // Nothing is compressed, and so nothing may be.
  EngineStackOptions options{.pool_bytes = kPoolBytes};
  options.cache.planner = "lru";
  options.cache.load_always = true;
  return EngineStack::open(model, tokenizer, std::move(options), std::move(tiers), nullptr, clock);
}

struct Prompt {
  std::vector<Token> context, question;
};

struct Tally {
  std::size_t answers = 0, different = 0;
  std::uint64_t cached_tokens = 0;
};

class ExactBench {
 public:
  static Result<std::unique_ptr<ExactBench>> open(const BenchExactOptions& options,
                                                  const std::filesystem::path& scratch) {
    std::unique_ptr<ExactBench> bench(new ExactBench(options));
    SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
    SHALE_ASSIGN(bench->tokenizer_, Tokenizer::load(path));
    SHALE_ASSIGN(bench->model_, open_model(options.model));
    ModelChoice alone = options.model;
    alone.threads = 1;
    SHALE_ASSIGN(bench->model_of_one_thread_, open_model(alone));
    const auto open = [&](Model& model, const char* scheme, const char* name) -> Status {
      const TierSpec spec{.scheme = scheme, .name = name, .capacity_bytes = kTierBytes, .place = scratch / name};
      SHALE_ASSIGN(bench->stacks_.emplace_back(), open_stack(model, *bench->tokenizer_, spec, bench->clock_));
      return {};
    };
    SHALE_TRY(open(*bench->model_, "memory", kWays[kMemory]));
    SHALE_TRY(open(*bench->model_, "file", kWays[kDisk]));
    SHALE_TRY(open(*bench->model_, "dir", kWays[kRemote]));
    SHALE_TRY(open(*bench->model_of_one_thread_, "memory", kWays[kThread]));
    return bench;
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ModelInfo& info() const { return model_->info(); }
  const std::array<Tally, kWays.size()>& tallies() const { return tallies_; }

  Status ask_all(std::span<const Prompt> prompts, std::size_t which) {
    const Prompt& prompt = prompts[which];
    Engine& engine = stacks_[0]->engine();
    SHALE_ASSIGN(const Response cold, run(engine, cold_request(prompt)));
    for (const Way way : {kMemory, kDisk, kRemote}) {
      EngineStack& stack = *stacks_[way - kMemory];
      SHALE_TRY(compare(kStored, stack.engine(), request(prompt), cold));
      if (way == kMemory) SHALE_TRY(compare(kPool, stack.engine(), request(prompt), cold));
      stack.empty_pool();
      SHALE_TRY(compare(way, stack.engine(), request(prompt), cold));
      stack.empty_pool();
    }
    SHALE_TRY(beside(prompts, which, cold));
    EngineOptions cut = engine.options();
    cut.chunk_tokens = 16 + static_cast<std::uint32_t>(random_() % 300);
    Engine other(cut, *model_, *tokenizer_, engine.cache(), clock_);
    SHALE_TRY(compare(kCut, other, cold_request(prompt), cold));
    for (const bool exact : {true, false}) SHALE_TRY(turn(prompt, exact));
    // What was measured as fastest on one thread may be other weights, and other weights give other answers.
    if (weights_of(*model_) != weights_of(*model_of_one_thread_)) return {};
    return compare(kThread, stacks_.back()->engine(), cold_request(prompt), cold);
  }

 private:
  explicit ExactBench(const BenchExactOptions& options) : options_(options) {}

  Request request(const Prompt& prompt) const {
    Request request;
    request.spans.push_back({prompt.context, true, "context"});
    request.spans.push_back({prompt.question, false, ""});
    request.max_tokens = options_.answer_tokens;
    request.ignore_end = true;
    request.policy.exact = true;
    return request;
  }
  // Looks for nothing and leaves nothing.
  Request cold_request(const Prompt& prompt) const {
    Request cold = request(prompt);
    cold.use_cache = cold.insert_prefix = cold.spans[0].store = false;
    return cold;
  }

  // "bf16-packed" of "bf16-packed (measured 5.1x q4_1 when first loaded)", of prompts and of answers.
  static std::pair<std::string_view, std::string_view> weights_of(const Model& model) {
    const auto type = [](std::string_view name) { return name.substr(0, name.find(' ')); };
    return {type(model.info().prefill_weights), type(model.info().decode_weights)};
  }

  static Result<Response> run(Engine& engine, Request request) {
    SHALE_TRY(check_interrupt());
    Response response = engine.run(std::move(request));
    if (response.error) return std::unexpected(*response.error);
    return response;
  }

  void count(Way way, const Response& response, const Response& wanted) {
    Tally& tally = tallies_[way];
    ++tally.answers;
    tally.different += response.lossy || response.tokens != wanted.tokens;
    tally.cached_tokens += response.cached.total();
  }

  Status compare(Way way, Engine& engine, Request request, const Response& wanted) {
    SHALE_ASSIGN(const Response response, run(engine, std::move(request)));
    count(way, response, wanted);
    return {};
  }

  Status beside(std::span<const Prompt> prompts, std::size_t which, const Response& wanted) {
    Engine& engine = stacks_[0]->engine();
    std::optional<RequestId> ours;
    for (std::uint32_t i = 0; i <= options_.beside; ++i) {
      Request each = request(prompts[(which + i) % prompts.size()]);
      each.spans[0].store = each.insert_prefix = false;  // the next are to begin with nothing
      if (i % 2 == 1) each.policy.exact = false;
      SHALE_ASSIGN(const RequestId id, engine.submit(std::move(each)));
      if (i == 0) ours = id;
    }
    while (engine.run_once()) SHALE_TRY(check_interrupt());
    for (const Response& response : engine.finished()) {
      if (response.error) return std::unexpected(*response.error);
      if (response.id == *ours) count(kBeside, response, wanted);
    }
    return {};
  }

  // The second turn of a chat: cold, and over what the first turn left.
  Status turn(const Prompt& prompt, bool exact) {
    Engine& engine = stacks_[0]->engine();
    Request first = request(prompt);
    first.policy.exact = exact;
    first.store_answer = true;
    SHALE_ASSIGN(const Response answered, run(engine, std::move(first)));
    Prompt second = prompt;
    second.context.insert(second.context.end(), prompt.question.begin(), prompt.question.end());
    second.context.insert(second.context.end(), answered.tokens.begin(), answered.tokens.end());
    SHALE_ASSIGN(const Response cold, run(engine, cold_request(second)));
    SHALE_TRY(compare(kTurn, engine, request(second), cold));
    stacks_[0]->empty_pool();
    return {};
  }

  const BenchExactOptions& options_;
  RealClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_, model_of_one_thread_;
  std::vector<std::unique_ptr<EngineStack>> stacks_;  // of each tier; and of one thread
  std::array<Tally, kWays.size()> tallies_ = {};
  std::mt19937 random_{1};
};

Result<std::vector<Prompt>> read_prompts(const BenchExactOptions& options, const Tokenizer& tokenizer) {
  SHALE_ASSIGN(const auto contexts,
               read_load_contexts(options.contexts, options.contexts_max, options.context_tokens, tokenizer));
  std::vector<Prompt> prompts;
  for (const LoadContext& context : contexts) {
    for (const std::string& question : context.questions | std::views::take(options.questions_max)) {
      prompts.push_back({context.tokens, tokenizer.tokenize("\n" + question + "\n", false)});
    }
  }
  return prompts;
}

Status run_bench_exact(const BenchExactOptions& options) {
  SHALE_ASSIGN(const ScratchFolder scratch, ScratchFolder::create(user_folder("XDG_CACHE_HOME", ".cache")));
  SHALE_ASSIGN(const auto bench, ExactBench::open(options, scratch.path()));
  SHALE_ASSIGN(const auto prompts, read_prompts(options, bench->tokenizer()));
  Progress progress(options.output, "answering");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SHALE_TRY(bench->ask_all(prompts, i));
    progress(i + 1, prompts.size());
  }
  std::size_t different = 0;
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    const Tally& tally = bench->tallies()[way];
    different += tally.different;
    if (options.output.json) {
      print_json({{"way", kWays[way]},
                  {"answers", tally.answers},
                  {"different", tally.different},
                  {"cached_tokens", tally.cached_tokens},
                  {"model", bench->info().name},
                  {"weights", {{"prefill", bench->info().prefill_weights}, {"decode", bench->info().decode_weights}}}});
    } else {
      fmt::print("{:<8} {:>5} answers, {:>4} different; {:>9} tokens cached\n", kWays[way], tally.answers,
                 tally.different, tally.cached_tokens);
    }
  }
  if (different == 0) return {};
  return fail(ErrorCode::kInternal, "{} answers are not those that computing gives", different);
}

}  // namespace

void add_bench_exact(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "exact", "Whether answers that demand exact KV are the same however they come about",
                  run_bench_exact);
  command.footer(kBenchExactExamples);
  command.add_option("--contexts", options->contexts, "Contexts with questions, as of `shale quality`")
      .required()
      .delimiter(',')
      .existing_file()
      .type_name("FILE[,FILE]");
  command.add_option("--contexts-max", options->contexts_max, "Contexts of each file at most; 0: all")
      .type_name("N")
      .capture_default_str();
  command.add_option("--questions-max", options->questions_max, "Questions of each context at most")
      .range(1, 1 << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--context-tokens", options->context_tokens, "Longer contexts are cut there")
      .range(1, 1 << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--answer-tokens", options->answer_tokens, "Tokens of an answer")
      .range(1, 4096)
      .type_name("N")
      .capture_default_str();
  command.add_option("--beside", options->beside, "Other requests at once, in the way that has any")
      .range(1, 63)
      .type_name("N")
      .capture_default_str();
  add_model_options(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
