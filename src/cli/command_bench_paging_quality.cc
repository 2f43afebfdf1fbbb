#include <fmt/format.h>

#include <map>

#include "cli/bench_machine.h"
#include "cli/command.h"
#include "cli/quality_contexts.h"
#include "cli/requests.h"
#include "cli/serving.h"
#include "cli/text_file.h"
#include "profile/bootstrap.h"
#include "profile/paged_quality.h"
#include "profile/prompt.h"
#include "profile/text_metrics.h"

namespace shale {
namespace {

struct Options {
  ServingOptions serving;
  OutputOptions output;
  std::vector<std::string> files, methods = {"paged_eviction", "streaming", "knorm", "keydiff", "snapkv", "random"};
  std::vector<std::uint32_t> budgets = {256, 512, 1024, 2048};
  std::size_t contexts = 6, questions = 1;
  std::uint32_t answer_tokens = 48, context_tokens = 4096;
  std::string prompt;
  bool keep_first_page = false;
};

constexpr char kExamples[] =
    "The full cache and every budget answer in lockstep. `agreement` and `kl` compare each token's prediction while "
    "all\n"
    "are fed the full cache's answer; `f1` compares a budget's own answer with the accepted ones, or with the full\n"
    "cache's where a data set has none. `random` is the floor. With --prompt, long answers to one request instead.\n"
    "\n"
    "Examples:\n"
    "  shale bench paging-quality hotpotqa.jsonl qasper.jsonl --budgets 256,1024\n"
    "  shale bench paging-quality --prompt \"Tell a long story.\" --answer-tokens 3000 --budgets 512";

struct Key {
  std::string dataset, method;
  std::uint32_t budget;
  auto operator<=>(const Key&) const = default;
};
// A group a context.
struct Measured {
  std::vector<std::vector<double>> agreement, kl, f1;
};

class Bench {
 public:
  Bench(const Options& options, Serving& serving) : options_(options), serving_(serving) {
    measure_.answer_tokens = options.answer_tokens;
    measure_.scorers = options.serving.cache.scorers;
    measure_.calibration = serving.cache().options().model.calibration;
    for (const std::uint32_t budget : options.budgets) {
      for (const std::string& method : options.methods) {
        measure_.budgets.push_back({.tokens = budget, .method = method, .keep_first_page = options.keep_first_page});
      }
    }
  }

  Status ask(const std::string& dataset, const std::string& id, std::string_view context, std::string_view question,
             std::span<const std::string> accepted, bool first_of_context) {
    SHALE_ASSIGN(PromptParts parts, make_prompt(serving_.tokenizer(), context, question));
    std::vector<Token> prompt = std::move(parts.context);
    const std::uint32_t room =
        std::min(options_.context_tokens, serving_.model().info().context_max - options_.answer_tokens -
                                              static_cast<std::uint32_t>(parts.question.size()));
    if (prompt.size() > room) {  // loses its middle
      prompt.erase(prompt.begin() + room / 2, prompt.end() - (room - room / 2));
    }
    prompt.insert(prompt.end(), parts.question.begin(), parts.question.end());
    PagedQualityOptions measure = measure_;
    measure.ignore_end = context.empty();
    SHALE_ASSIGN(const PagedQualities found,
                 measure_paged_quality(serving_.model(), serving_.tokenizer(), serving_.pool(), prompt, measure));
    const std::string full = serving_.tokenizer().text(found.answer);
    const std::vector<std::string> of_full{full};
    const TextMetric f1_metric{"f1", f1};
    for (std::size_t i = 0; i < found.budgets.size(); ++i) {
      const PagedQuality& one = found.budgets[i];
      const std::string answer = serving_.tokenizer().text(one.answer);
      const double of_answer = best_of(f1_metric, answer, accepted.empty() ? std::span(of_full) : accepted);
      for (const std::string& group : {dataset, std::string("all")}) {
        add({group, measure.budgets[i].method, measure.budgets[i].tokens}, one.forced, of_answer, first_of_context);
      }
      if (options_.output.json)
        print_row(dataset, id, prompt.size(), measure.budgets[i], found, one, answer, of_answer);
    }
    for (const std::string& group : {dataset, std::string("all")}) {
      add({group, "full", 0}, {1, 0}, best_of(f1_metric, full, accepted.empty() ? std::span(of_full) : accepted),
          first_of_context);
    }
    return {};
  }

  void print_table() const {
    std::string dataset;
    for (const auto& [key, measured] : measured_) {
      if (key.dataset != dataset) {
        dataset = key.dataset;
        fmt::print("\n{}\n{:>6}  {:<18}  {:<22}  {:<9}  {:<22}\n", dataset, "BUDGET", "METHOD", "AGREEMENT", "KL",
                   "F1");
      }
      const Interval agreement = bootstrap_mean(measured.agreement), f1 = bootstrap_mean(measured.f1);
      fmt::print("{:>6}  {:<18}  {:.3f} [{:.3f}, {:.3f}]   {:>7.3f}   {:.3f} [{:.3f}, {:.3f}]\n",
                 key.budget ? fmt::format("{}", key.budget) : "", key.method, agreement.mean, agreement.low,
                 agreement.high, bootstrap_mean(measured.kl).mean, f1.mean, f1.low, f1.high);
    }
  }

 private:
  void add(const Key& key, const Divergence& forced, double of_answer, bool first_of_context) {
    Measured& to = measured_[key];
    if (first_of_context) {
      for (auto* values : {&to.agreement, &to.kl, &to.f1}) values->emplace_back();
    }
    to.agreement.back().push_back(forced.agreement);
    to.kl.back().push_back(forced.kl);
    to.f1.back().push_back(of_answer);
  }

  void print_row(const std::string& dataset, const std::string& id, std::size_t prompt_tokens,
                 const PageBudgetOptions& budget, const PagedQualities& all, const PagedQuality& one,
                 const std::string& answer, double of_answer) const {
    Json along = Json::array();
    for (const Divergence& each : one.along) along.push_back({{"agreement", each.agreement}, {"kl", each.kl}});
    print_json({{"dataset", dataset},
                {"id", id},
                {"method", budget.method},
                {"budget", budget.tokens},
                {"keep_first_page", budget.keep_first_page},
                {"prompt_tokens", prompt_tokens},
                {"answer_tokens", all.answer.size()},
                {"agreement", one.forced.agreement},
                {"kl", one.forced.kl},
                {"along", std::move(along)},
                {"stretch_tokens", measure_.stretch_tokens},
                {"f1", of_answer},
                {"answer", answer},
                {"page_budget", to_json(one.stats)},
                {"model", serving_.model().info().name}});
  }

  const Options& options_;
  Serving& serving_;
  PagedQualityOptions measure_;
  std::map<Key, Measured> measured_;
};

Status run(const Options& options) {
  if (options.files.empty() == options.prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "give data sets, or --prompt for one long answer");
  }
  ServingOptions serving_options = options.serving;
  serving_options.store = false;
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, options.output));
  Bench bench(options, *serving);
  if (!options.prompt.empty()) SHALE_TRY(bench.ask("prompt", "prompt", "", options.prompt, {}, true));
  for (const std::string& file : options.files) {
    SHALE_ASSIGN(const auto contexts, read_quality_contexts(file, options.contexts, options.questions));
    for (const QualityContext& context : contexts) {
      for (std::size_t q = 0; q < context.questions.size(); ++q) {
        const std::span<const std::string> accepted =
            q < context.answers.size() ? std::span(context.answers[q]) : std::span<const std::string>();
        SHALE_TRY(bench.ask(context.dataset, context.id, context.text, context.questions[q], accepted, q == 0));
      }
    }
  }
  if (!options.output.json) bench.print_table();
  return {};
}

}  // namespace

void add_bench_paging_quality(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "paging-quality", "What page budgets do to answers, beside the full cache", run);
  command->footer(kExamples);
  command->add_option("FILE", options->files, "Contexts with questions, as `shale quality` reads them");
  command->add_option("--prompt", options->prompt, "A request without a context, answered at length")
      ->type_name("TEXT");
  command->add_option("--compare", options->methods, "paged_eviction, or [budget:]scorer")
      ->delimiter(',')
      ->type_name("METHOD,...")
      ->capture_default_str();
  command->add_option("--budgets", options->budgets, "Tokens that a KV head keeps")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N,...")
      ->capture_default_str();
  command->add_flag("--keep-first-page", options->keep_first_page,
                    "paged_eviction never drops the first page, where attention sinks lie");
  command->add_option("--contexts", options->contexts, "Of each file; 0: all")->type_name("N")->capture_default_str();
  command->add_option("--questions", options->questions, "Of each context; 0: all")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--answer-tokens", options->answer_tokens, "Of each answer at most")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--context-tokens", options->context_tokens, "Longer contexts lose their middle")
      ->check(CLI::Range(16u, 1u << 20))
      ->type_name("N")
      ->capture_default_str();
  add_serving_options(*command, options->serving);
  add_output_options(*command, options->output);
}

}  // namespace shale
