#include <fmt/format.h>

#include <array>
#include <random>
#include <ranges>

#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/interrupt.h"
#include "cli/serve_load.h"
#include "cli/serving.h"

namespace shale {
namespace {

struct BenchExactOptions {
  ModelChoice model;
  OutputOptions output;
  std::vector<std::string> contexts;
  std::size_t contexts_max = 0, questions_max = 1;
  std::uint32_t context_tokens = 400, answer_tokens = 24, beside = 7;
};

constexpr char kExamples[] =
    "Every question of every context is answered once with nothing cached, alone and uncut; then in each of these\n"
    "ways, and each answer is compared token by token with that one. It fails where any differs.\n"
    "\n"
    "  stored    with nothing cached yet, while what is computed is stored\n"
    "  pool      from the block pool\n"
    "  tiers     from the tiers, the block pool being empty\n"
    "  beside    the same, beside other requests, of which some do not demand exact KV\n"
    "  cut       with nothing cached, in chunks of some other length\n"
    "  turn      as the second turn of a chat whose first answer did not demand exact KV\n"
    "  thread    with nothing cached, on one thread, where the same weights run there\n"
    "\n"
    "Examples:\n"
    "  shale bench exact --contexts nq_multidoc20.jsonl,squality.jsonl --contexts-max 20";

constexpr std::array kWays = {"stored", "pool", "tiers", "beside", "cut", "turn", "thread"};
enum Way : std::size_t { kStored, kPool, kTiers, kBeside, kCut, kTurn, kThread };

struct Prompt {
  std::vector<Token> context, question;
};

struct Tally {
  std::size_t answers = 0, different = 0;
  std::uint64_t cached_tokens = 0;
};

class Bench {
 public:
  Bench(const BenchExactOptions& options, Serving& serving, Serving& one_thread)
      : options_(options), serving_(serving), one_thread_(one_thread) {}

  const std::array<Tally, kWays.size()>& tallies() const { return tallies_; }

  Status ask_all(std::span<const Prompt> prompts, std::size_t which) {
    const Prompt& prompt = prompts[which];
    Engine& engine = serving_.engine();
    SHALE_ASSIGN(const Response cold, run(engine, cold_request(prompt)));
    SHALE_TRY(compare(kStored, engine, request(prompt), cold));
    SHALE_TRY(compare(kPool, engine, request(prompt), cold));
    empty_pool();
    SHALE_TRY(compare(kTiers, engine, request(prompt), cold));
    empty_pool();
    SHALE_TRY(beside(prompts, which, cold));
    EngineOptions cut = engine.options();
    cut.chunk_tokens = 16 + static_cast<std::uint32_t>(random_() % 300);
    Engine other(cut, serving_.model(), serving_.tokenizer(), serving_.cache(), serving_.clock());
    SHALE_TRY(compare(kCut, other, cold_request(prompt), cold));
    SHALE_TRY(turn(prompt));
    // What was measured as fastest on one thread may be other weights, and other weights give other answers.
    if (weights_of(one_thread_) != weights_of(serving_)) return {};
    return compare(kThread, one_thread_.engine(), cold_request(prompt), cold);
  }

 private:
  Request request(const Prompt& prompt) const {
    Request request;
    request.segments.push_back({prompt.context, true, "context"});
    request.segments.push_back({prompt.question, false, ""});
    request.max_tokens = options_.answer_tokens;
    request.ignore_end = true;
    request.demand.exact = true;
    return request;
  }
  // Looks for nothing and leaves nothing.
  Request cold_request(const Prompt& prompt) const {
    Request cold = request(prompt);
    cold.use_cache = cold.remember = cold.segments[0].store = false;
    return cold;
  }

  // "bf16-packed" of "bf16-packed (measured 5.1x q4_1 when first loaded)".
  static std::string_view weights_of(Serving& serving) {
    const std::string_view name = serving.model().info().prefill_weights;
    return name.substr(0, name.find(' '));
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

  void empty_pool() {
    serving_.cache().drain(serving_.model().executor());
    static_cast<void>(serving_.cache().make_room(serving_.pool().slabs_total()));
  }

  Status beside(std::span<const Prompt> prompts, std::size_t which, const Response& wanted) {
    Engine& engine = serving_.engine();
    std::optional<RequestId> ours;
    for (std::uint32_t i = 0; i <= options_.beside; ++i) {
      Request each = request(prompts[(which + i) % prompts.size()]);
      each.segments[0].store = each.remember = false;  // the next are to begin with nothing
      if (i % 2 == 1) each.demand.exact = false;
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
  Status turn(const Prompt& prompt) {
    Request first = request(prompt);
    first.demand.exact = false;
    first.store_answer = true;
    SHALE_ASSIGN(const Response said, run(serving_.engine(), std::move(first)));
    Prompt second = prompt;
    second.context.insert(second.context.end(), prompt.question.begin(), prompt.question.end());
    second.context.insert(second.context.end(), said.tokens.begin(), said.tokens.end());
    SHALE_ASSIGN(const Response cold, run(serving_.engine(), cold_request(second)));
    return compare(kTurn, serving_.engine(), request(second), cold);
  }

  const BenchExactOptions& options_;
  Serving &serving_, &one_thread_;
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

Status run(const BenchExactOptions& options) {
  SHALE_ASSIGN(const ScratchFolder scratch, ScratchFolder::create(user_folder("XDG_CACHE_HOME", ".cache")));
  ServingOptions serving_options;
  serving_options.model = options.model;
  serving_options.tiers.cache_dir = scratch.path();
  serving_options.cache.load_always = true;
  serving_options.cache.planner = "lru";  // nothing is compressed, and so nothing may be
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, options.output));
  serving_options.model.threads = 1;  // of the weights that are measured as fastest there
  serving_options.store = false;
  SHALE_ASSIGN(const auto one_thread, Serving::open(serving_options, options.output));
  SHALE_ASSIGN(const auto prompts, read_prompts(options, serving->tokenizer()));
  Bench bench(options, *serving, *one_thread);
  Progress progress(options.output, "answering");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SHALE_TRY(bench.ask_all(prompts, i));
    progress(i + 1, prompts.size());
  }
  std::size_t different = 0;
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    const Tally& tally = bench.tallies()[way];
    different += tally.different;
    if (options.output.json) {
      print_json({{"way", kWays[way]},
                  {"answers", tally.answers},
                  {"different", tally.different},
                  {"cached_tokens", tally.cached_tokens},
                  {"model", serving->model().info().name},
                  {"weights",
                   {{"prefill", serving->model().info().prefill_weights},
                    {"decode", serving->model().info().decode_weights}}}});
    } else {
      fmt::print("{:<8} {:>5} answers, {:>4} different; {:>9} tokens cached\n", kWays[way], tally.answers,
                 tally.different, tally.cached_tokens);
    }
  }
  if (different == 0) return {};
  return fail(ErrorCode::kInternal, "{} answers are not those that computing gives", different);
}

}  // namespace

void add_bench_exact(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "exact", "Whether answers that demand exact KV are the same however they come about", run);
  command->footer(kExamples);
  command->add_option("--contexts", options->contexts, "Contexts with questions, as of `shale quality`")
      ->required()
      ->delimiter(',')
      ->check(CLI::ExistingFile)
      ->type_name("FILE[,FILE]");
  command->add_option("--contexts-max", options->contexts_max, "Contexts of each file at most; 0: all")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--questions-max", options->questions_max, "Questions of each context at most")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--context-tokens", options->context_tokens, "Longer contexts are cut there")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--answer-tokens", options->answer_tokens, "Tokens of an answer")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--beside", options->beside, "Other requests at once, in the way that has any")
      ->check(CLI::Range(1, 63))
      ->type_name("N")
      ->capture_default_str();
  add_model_options(*command, options->model);
  add_output_options(*command, options->output);
}

}  // namespace shale
