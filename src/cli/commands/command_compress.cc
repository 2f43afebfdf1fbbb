#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/text_file.h"
#include "core/units.h"
#include "profile/context_scores.h"
#include "profile/prompt.h"
#include "profile/rate_plan.h"
#include "runtime/serving.h"
#include "scoring/budgets/budget.h"

namespace shale {
namespace {

// One of the two.
struct SizeBudget {
  double share = 0;  // of the context's size as computed
  std::uint64_t bytes = 0;

  std::uint64_t of(std::uint64_t full_bytes) const {
    return share > 0 ? static_cast<std::uint64_t>(share * static_cast<double>(full_bytes)) : bytes;
  }
};

struct CompressOptions {
  ServingOptions serving;
  OutputOptions output;
  std::string context;
  SizeBudget budget;
  std::optional<Method> method;
};

constexpr char kCompressExamples[] =
    "The best (keep, bits, spread over heads) within the budget, and what choosing for every\n"
    "head alone would be worth beyond it. Distortion is the squared error of attention's output over the spread of\n"
    "the values it averages: 0 for nothing lost, 1 for everything. Nothing is measured on answers: see shale profile.\n"
    "\n"
    "Examples:\n"
    "  shale compress --context LICENSE --budget 0.2\n"
    "  shale compress --context LICENSE --budget 4MiB --method keydiff+int8/kivi4 --json";

// Finest first.
constexpr std::array<std::string_view, 4> kQuantizers = {"none", "int8", "kivi4", "kivi2"};

constexpr std::uint32_t kQueryWindow = 16;  // of queries that distortion is measured by

// A number above 1 that is not whole is a share mistyped, not bytes.
Result<SizeBudget> parse_size_budget(const std::string& text) {
  const auto number = parse_number(text);
  if (number && *number > 0 && *number <= 1) return SizeBudget{.share = *number};
  const bool whole = !number || *number == std::floor(*number);
  if (const auto bytes = parse_bytes(text); bytes && *bytes > 0 && whole) return SizeBudget{.bytes = *bytes};
  return fail(ErrorCode::kInvalidArgument,
              "'{}' is neither a share above 0 and at most 1 of the uncompressed size, nor bytes: 0.2, 4MiB", text);
}

std::vector<std::string> quantizers_of(const Method& method) {
  std::vector<std::string> names;
  if (method.quantizer == "none") return {kQuantizers.begin(), kQuantizers.end()};
  for (std::uint32_t s = 0; s < kKeepGrid.size(); ++s) names.emplace_back(method.quantizer_of(s));
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

// Budgets that keep at a keep what an object read at it holds, unless one is named.
std::vector<std::string> budgets_of(const Method& method) {
  if (!method.budget.empty()) return {method.budget};
  std::vector<std::string> names = {"uniform"};
  for (const std::string_view name : budget_names()) {
    if (name != "uniform" && make_budget(name).value()->nested()) names.emplace_back(name);
  }
  return names;
}

Json choice_json(const RateChoice& choice) {
  return {
      {"bytes", choice.bytes}, {"predicted_distortion", choice.predicted}, {"measured_distortion", choice.measured}};
}

Json plan_json(const RatePlan& plan, std::uint32_t tokens, std::uint64_t budget) {
  Json heads = Json::array(), errors = Json::array();
  for (const Precision& precision : plan.heads) heads.push_back(precision);
  for (const QuantizerError& error : plan.errors) {
    const auto order = [](const HeadDistortion::Error& of) { return Json{{"keys", of.keys}, {"values", of.values}}; };
    errors.push_back({{"quantizer", error.name},
                      {"bits", error.bits},
                      {"position_order", order(error.position)},
                      {"importance_order", order(error.importance)}});
  }
  Json object = choice_json(plan.object), per_head = choice_json(plan.per_head);
  object["method"] = plan.method.text();
  object["keep"] = plan.keep;
  per_head["tier_quantizers"] = std::move(heads);
  return {{"tokens", tokens},
          {"full_bytes", plan.full_bytes},
          {"budget_bytes", budget},
          {"object", std::move(object)},
          {"per_head", std::move(per_head)},
          {"error_by_order", std::move(errors)}};
}

void print_choice(const std::string& what, const RateChoice& choice, std::uint64_t full_bytes) {
  fmt::print("{:<48}  {:>10}  {:>5.3f}  {:>9.4f}  {:>8.4f}\n", what, format_bytes(choice.bytes),
             static_cast<double>(choice.bytes) / static_cast<double>(full_bytes), choice.predicted, choice.measured);
}

void print_tables(const RatePlan& plan) {
  fmt::print("{:<48}  {:>10}  {:>5}  {:>9}  {:>8}\n", "CONFIGURATION", "SIZE", "SHARE", "PREDICTED", "MEASURED");
  print_choice(fmt::format("{}, keep {}", plan.method.text(), plan.keep), plan.object, plan.full_bytes);
  print_choice("tokens and bits by head", plan.per_head, plan.full_bytes);
  fmt::print(
      "\nSquared error over the square, coded in order of position, and of position within tiers of importance:\n");
  fmt::print("{:<12}  {:>5}  {:>10}  {:>10}  {:>10}  {:>10}\n", "QUANTIZER", "BITS", "KEYS", "KEYS", "VALUES",
             "VALUES");
  for (const QuantizerError& error : plan.errors) {
    fmt::print("{:<12}  {:>5.2f}  {:>10.2e}  {:>10.2e}  {:>10.2e}  {:>10.2e}\n", error.name, error.bits,
               error.position.keys, error.importance.keys, error.position.values, error.importance.values);
  }
}

Status run_compress(const CompressOptions& options) {
  const Method method = options.method.value_or(Method{"snapkv", "none"});
  if (method.scorer.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} ranks no tokens; give a method with a scorer, such as snapkv",
                method.text());
  }
  SHALE_ASSIGN(const std::string text, read_text(options.context));
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, options.output));
  SHALE_ASSIGN(AskedContext context, ask(serving->tokenizer(), text, {}));
  SHALE_TRY(keep_whole_blocks(context, serving->cache().block_tokens()));
  SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, options.serving.cache.scorers));
  ScorerNeeds needs = scorer->needs();
  needs.last_queries = std::max(needs.last_queries, kQueryWindow);
  SHALE_ASSIGN(const ExactContext seen, exact_context(serving->engine(), context.tokens, needs,
                                                      {std::filesystem::path(options.context).filename()}));
  SHALE_ASSIGN(const std::vector<float> scores,
               score_context(serving->engine(), seen, method.scorer, options.serving.cache.scorers));
  const std::uint32_t tokens = seen.sequence.length();
  const std::uint64_t budget = options.budget.of(tokens * serving->pool().shape().token_bytes());
  const AttentionStatistics& observed = seen.run.statistics;
  SHALE_ASSIGN(const RatePlan plan,
               plan_rate({&seen.sequence, method.scorer, scores, observed.queries, observed.query_heads,
                          observed.window, options.serving.cache.scorers.window, serving->cache().options().tables,
                          serving->cache().options().model},
                         quantizers_of(method), budgets_of(method), budget, serving->model().executor()));
  if (options.output.json) {
    print_json(plan_json(plan, tokens, budget));
  } else {
    print_tables(plan);
  }
  return serving->finish_background(options.output);
}

}  // namespace

void add_compress(Command parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "compress",
                                        "Find the best keep and bits of one document's cache for a size", run_compress);
  command.footer(kCompressExamples);
  command.add_option("--context", options->context, "The document, UTF-8 text").required().type_name("FILE");
  command
      .add_parsed(
          "--budget",
          [&budget = options->budget](const std::string& text) -> Status {
            SHALE_ASSIGN(budget, parse_size_budget(text));
            return {};
          },
          "Bytes, or a share of the uncompressed size: 4MiB, 0.2")
      .required()
      .type_name("BYTES|SHARE");
  add_method(
      command, "--method", options->method,
      "The scorer that ranks tokens, and the quantizers to choose from, finest first: snapkv, keydiff+int8/kivi4")
      .default_str("snapkv");
  add_serving_options(command, options->serving);
  add_output_options(command, options->output);
}

}  // namespace shale
