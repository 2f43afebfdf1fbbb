#include <fmt/format.h>

#include <map>
#include <set>

#include "bench/bench_machine.h"
#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/text_file.h"
#include "profile/bootstrap.h"
#include "profile/metrics/text_metrics.h"
#include "profile/paged_quality.h"
#include "profile/prompt.h"
#include "runtime/quality_contexts.h"
#include "runtime/requests.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct PagingQualityOptions {
  ServingOptions serving;
  OutputOptions output;
  std::vector<std::string> files, methods = {"paged_eviction", "streaming", "knorm", "keydiff", "snapkv", "random"};
  std::vector<std::uint32_t> budgets = {256, 512, 1024, 2048};
  std::size_t contexts = 6, questions = 1;
  std::uint32_t answer_tokens = 48, context_tokens = 4096;
  std::string prompt;
  bool full_layers = false, keep_first_page = false;
};

constexpr char kBenchPagingQualityExamples[] =
    "The full cache and every budget answer in lockstep. `agreement` and `kl` compare each token's prediction while "
    "all\n"
    "are fed the full cache's answer; `f1` compares a budget's own answer with the accepted ones, or with the full\n"
    "cache's where a data set has none. How far a method is from the best one of its budget is a paired interval.\n"
    "`random` is the floor. With --prompt, long answers to one request instead, and agreement part by part.\n"
    "\n"
    "Examples:\n"
    "  shale bench paging-quality --contexts hotpotqa.jsonl,qasper.jsonl --budgets 256,1024\n"
    "  shale bench paging-quality --prompt \"Tell a long story.\" --answer-tokens 3000 --budgets 512";

std::string label_of(const KvBudgetOptions& budget) {
  return budget.keep_first_page ? budget.method + " +first" : budget.method;
}

constexpr char kAll[] = "all";  // data sets together

struct Key {
  std::string dataset;
  std::uint32_t budget;
  std::string method;
  auto operator<=>(const Key&) const = default;
};
// A group a context.
struct MeasuredBudget {
  std::vector<std::vector<double>> agreement, kl, f1;
};

class PagingQualityBench {
 public:
  // `reference`: of fp16, where the serving's own pool is not.
  PagingQualityBench(const PagingQualityOptions& options, Serving& serving, PagePool* reference)
      : options_(options), serving_(serving) {
    measure_.answer_tokens = options.answer_tokens;
    measure_.scorers = options.serving.cache.scorers;
    measure_.calibration = serving.cache().options().model.calibration;
    measure_.reference = reference;
    if (reference) measure_.budgets.push_back({.tokens = 0, .method = options.serving.model.kv_cache_dtype});
    for (const std::uint32_t tokens : options.budgets) {
      for (const std::string& method : options.methods) {
        KvBudgetOptions budget{.tokens = tokens, .method = method, .full_layers = options.full_layers};
        measure_.budgets.push_back(budget);
        budget.keep_first_page = options.keep_first_page && method == "paged_eviction";
        if (budget.keep_first_page) measure_.budgets.push_back(budget);
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
      for (const std::string& group : {dataset, std::string(kAll)}) {
        add({group, measure.budgets[i].tokens, label_of(measure.budgets[i])}, one.forced, of_answer, first_of_context);
      }
      if (!options_.prompt.empty()) along_.emplace_back(measure.budgets[i], one.along);
      if (options_.output.json)
        print_row(dataset, id, prompt.size(), measure.budgets[i], found, one, answer, of_answer);
    }
    for (const std::string& group : {dataset, std::string(kAll)}) {
      add({group, 0, "full"}, {1, 0}, best_of(f1_metric, full, accepted.empty() ? std::span(of_full) : accepted),
          first_of_context);
    }
    return {};
  }

  void print_table() const {
    std::string dataset;
    std::set<std::string> datasets;
    for (const auto& [key, measured] : measured_) datasets.insert(key.dataset);
    for (const auto& [key, measured] : measured_) {
      if (key.dataset == kAll && datasets.size() == 2) continue;  // the same as the only one
      if (key.dataset != dataset) {
        dataset = key.dataset;
        fmt::print("\n{}\n{:>6}  {:<21}  {:<22}  {:<23}  {:<9}  {:<22}\n", dataset, "BUDGET", "METHOD", "AGREEMENT",
                   "LESS THAN THE BEST", "KL", "F1");
      }
      const Interval agreement = bootstrap_mean(measured.agreement), f1 = bootstrap_mean(measured.f1);
      fmt::print("{:>6}  {:<21}  {:.3f} [{:.3f}, {:.3f}]   {:<23}  {:>7.3f}   {:.3f} [{:.3f}, {:.3f}]\n",
                 key.budget ? fmt::format("{}", key.budget) : "", key.method, agreement.mean, agreement.low,
                 agreement.high, key.budget ? behind_best(key) : "", bootstrap_mean(measured.kl).mean, f1.mean, f1.low,
                 f1.high);
    }
    if (!along_.empty()) {
      fmt::print("\nagreement of every {} tokens\n", measure_.span_tokens);
      for (const auto& [budget, along] : along_) {
        fmt::print("{:>6}  {:<21}", budget.tokens, label_of(budget));
        for (const Divergence& span : along) fmt::print(" {:.2f}", span.agreement);
        fmt::print("\n");
      }
    }
  }

 private:
  // How far a method's agreement is below that of the best one at the same budget: an interval of differences question
  // by question.
  std::string behind_best(const Key& key) const {
    const MeasuredBudget* best = nullptr;
    double most = -1;
    for (const auto& [other, measured] : measured_) {
      if (other.dataset != key.dataset || other.budget != key.budget) continue;
      const double mean = bootstrap_mean(measured.agreement).mean;
      if (mean > most) most = mean, best = &measured;
    }
    const MeasuredBudget& own = measured_.at(key);
    if (best == &own) return "best";
    std::vector<std::vector<double>> differences = best->agreement;
    for (std::size_t context = 0; context < differences.size(); ++context) {
      for (std::size_t q = 0; q < differences[context].size(); ++q)
        differences[context][q] -= own.agreement[context][q];
    }
    const Interval behind = bootstrap_mean(differences);
    return fmt::format("{:.3f} [{:.3f}, {:.3f}]", behind.mean, behind.low, behind.high);
  }

  void add(const Key& key, const Divergence& forced, double of_answer, bool first_of_context) {
    MeasuredBudget& to = measured_[key];
    if (first_of_context) {
      for (auto* values : {&to.agreement, &to.kl, &to.f1}) values->emplace_back();
    }
    to.agreement.back().push_back(forced.agreement);
    to.kl.back().push_back(forced.kl);
    to.f1.back().push_back(of_answer);
  }

  void print_row(const std::string& dataset, const std::string& id, std::size_t prompt_tokens,
                 const KvBudgetOptions& budget, const PagedQualities& all, const PagedQuality& one,
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
                {"span_tokens", measure_.span_tokens},
                {"f1", of_answer},
                {"answer", answer},
                {"kv_budget", to_json(one.stats)},
                {"model", serving_.model().info().name}});
  }

  const PagingQualityOptions& options_;
  Serving& serving_;
  PagedQualityOptions measure_;
  std::map<Key, MeasuredBudget> measured_;
  std::vector<std::pair<KvBudgetOptions, std::vector<Divergence>>> along_;  // of a --prompt
};

Status run_bench_paging_quality(const PagingQualityOptions& options) {
  if (options.files.empty() == options.prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "give --contexts, or --prompt for one long answer");
  }
  ServingOptions serving_options = options.serving;
  serving_options.store = false;
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, options.output));
  const PageShape& shape = serving->pool().shape();
  std::unique_ptr<PagePool> reference;
  if (shape.element != PageElement::kHalf) {
    SHALE_ASSIGN(reference, PagePool::create(shape.with(PageElement::kHalf),
                                             serving->pool().blocks_total() * shape.block_bytes()));
  }
  PagingQualityBench bench(options, *serving, reference.get());
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

void add_bench_paging_quality(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "paging-quality", "What KV budgets do to answers, beside the full cache",
                  run_bench_paging_quality);
  command.footer(kBenchPagingQualityExamples);
  command.add_option("--contexts", options->files, "Contexts with questions, as `shale quality` reads them")
      .delimiter(',')
      .type_name("FILE,...");
  command.add_option("--prompt", options->prompt, "A request without a context, answered at length").type_name("TEXT");
  command.add_option("--compare", options->methods, "paged_eviction, or [budget:]scorer")
      .delimiter(',')
      .type_name("METHOD,...")
      .capture_default_str();
  command.add_option("--budgets", options->budgets, "Tokens that a KV head keeps")
      .delimiter(',')
      .range(1u, 1u << 20)
      .type_name("N,...")
      .capture_default_str();
  command.add_flag("--keep-first-page", options->keep_first_page,
                   "paged_eviction also as it never drops the first page, where attention sinks lie");
  command.add_flag("--kv-eviction-full-layers", options->full_layers,
                   "Evict from the full layers of a model with sliding windows");
  command.add_option("--contexts-max", options->contexts, "Contexts of each file; 0: all")
      .type_name("N")
      .capture_default_str();
  command.add_option("--questions-max", options->questions, "Questions of each context; 0: all")
      .type_name("N")
      .capture_default_str();
  command.add_option("--answer-tokens", options->answer_tokens, "Tokens of each answer")
      .range(1u, 1u << 20)
      .type_name("N")
      .capture_default_str();
  command.add_option("--context-tokens", options->context_tokens, "Longer contexts lose their middle")
      .range(16u, 1u << 20)
      .type_name("N")
      .capture_default_str();
  add_serving_options(command, options->serving);
  add_kv_cache_dtype_option(command, options->serving.model);
  add_output_options(command, options->output);
}

}  // namespace shale
