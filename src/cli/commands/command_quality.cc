#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <tuple>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/units.h"
#include "metadata/context_kind.h"
#include "profile/metrics/text_metrics.h"
#include "profile/prior_texts.h"
#include "profile/sweep.h"
#include "quantizers/quantizer.h"
#include "report/prediction_report.h"
#include "report/quality_report.h"
#include "runtime/answer_metrics.h"
#include "runtime/quality_contexts.h"
#include "runtime/serving.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

constexpr std::size_t kKindBytes = 8192;  // of a context, to tell its kind by

struct QualityOptions {
  ServingOptions serving;
  OutputOptions output;
  std::vector<std::string> contexts, methods, generate;
  std::vector<double> keeps = {0.75, 0.5, 0.25, 0.1};
  std::vector<std::uint32_t> bits = {16};
  std::uint32_t contexts_max = 12, questions_max = 2;
  SweepOptions sweep = {.configurations = {}, .answer_tokens = 24, .stop = {}};
  std::string rows, html, markdown;
};

constexpr char kQualityExamples[] =
    "Every context is computed once; each method keeps some of its tokens, each number of bits rounds what is kept,\n"
    "and the questions are asked of the result. Agreement and KL compare it with the full cache token by token, in\n"
    "the full cache's own answer; --generate also compares whole answers. Tables never mix contexts that were\n"
    "compressed with their question in sight with those that were not.\n"
    "\n"
    "Contexts are JSON lines: {\"id\", \"dataset\", \"context\", \"questions\": [...], \"answers\": [[...], ...]}.\n"
    "With --rows a sweep goes on where it was stopped; without --contexts it only reports those rows. Other answer\n"
    "tokens, windows, context tokens or texts are measured anew.\n"
    "\n"
    "Examples:\n"
    "  shale quality --contexts xquad_en.jsonl --compare snapkv,keydiff,random --keeps 0.5,0.1\n"
    "  shale quality --contexts a.jsonl,b.jsonl --bits 16,8,4,2 --rows rows.jsonl --html quality.html\n"
    "  shale quality --contexts xquad_en.jsonl --predict --rows predicted.jsonl\n"
    "  shale quality --rows rows.jsonl --markdown quality.md";

// The scorers that need nothing made beforehand.
std::vector<std::string> default_methods() {
  std::vector<std::string> names;
  for (const std::string_view name : scorer_names()) {
    if (const auto scorer = make_scorer(name); scorer && !(*scorer)->needs().calibration) names.emplace_back(name);
  }
  return names;
}

Result<std::string> quantizer_of(std::uint32_t bits) {
  static constexpr std::array<std::pair<std::uint32_t, const char*>, 4> kByBits = {
      {{16, "none"}, {8, "int8"}, {4, "kivi4"}, {2, "kivi2"}}};
  const auto found = std::ranges::find(kByBits, bits, &std::pair<std::uint32_t, const char*>::first);
  if (found != kByBits.end()) return std::string(found->second);
  return fail(ErrorCode::kInvalidArgument, "--bits {}: use 16, 8, 4 or 2; name other quantizers in --compare", bits);
}

// METHOD@KEEP.
Result<SweepConfiguration> parse_configuration(std::string_view text) {
  const std::size_t at = text.find('@');
  SweepConfiguration configuration{.method = {}, .keep = 1, .generate = true};
  SHALE_ASSIGN(configuration.method, Method::parse(text.substr(0, at)));
  if (at == std::string_view::npos) return configuration;
  const auto keep = parse_number(text.substr(at + 1));
  if (!keep || !(*keep > 0 && *keep <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "--generate {}: the keep after @ must be above 0, at most 1", text);
  }
  configuration.keep = *keep;
  return configuration;
}

bool same(const SweepConfiguration& a, const SweepConfiguration& b) { return a.method == b.method && a.keep == b.keep; }

// Methods × keeps × bits, each once, those of one scorer together.
Result<std::vector<SweepConfiguration>> configurations_of(const QualityOptions& options) {
  std::vector<SweepConfiguration> all;
  const auto add = [&](SweepConfiguration wanted) {
    const auto known = std::ranges::find_if(all, [&](const auto& one) { return same(one, wanted); });
    if (known == all.end()) {
      all.push_back(std::move(wanted));
    } else {
      known->generate |= wanted.generate;
    }
  };
  for (const std::string& text : options.methods.empty() ? default_methods() : options.methods) {
    SHALE_ASSIGN(const Method method, Method::parse(text));
    for (const std::uint32_t bits : options.bits) {
      SHALE_ASSIGN(const std::string quantizer, quantizer_of(bits));
      if (quantizer != "none") add({.method = {.scorer = {}, .quantizer = quantizer}});
      Method coded = method;
      if (method.quantizer == "none") coded.quantizer = quantizer;
      for (const double keep : method.scorer.empty() ? std::vector<double>{1} : options.keeps) {
        add({.method = coded, .keep = keep});
      }
    }
  }
  for (const std::string& text : options.generate) {
    SHALE_ASSIGN(SweepConfiguration configuration, parse_configuration(text));
    add(std::move(configuration));
  }
  std::ranges::stable_sort(all, {}, [](const SweepConfiguration& one) { return one.method.scorer; });
  return all;
}

// Nominal bits of what is kept; their mean where tiers differ.
double bits_of(const SweepConfiguration& configuration, const CachegenTables* tables) {
  const auto bits = [&](std::uint32_t tier) {
    const auto quantizer = make_quantizer(configuration.method.quantizer_of(tier), tables);
    return quantizer ? (*quantizer)->bits() : 16;
  };
  const double first = bits(0);
  double beyond = 0, from = 0;
  for (std::uint32_t tier = 0; tier < kKeepGrid.size(); ++tier) {
    const double to = std::min(configuration.keep, kKeepGrid[tier]);
    beyond += (to - from) * (bits(tier) - first);
    from = to;
  }
  return first + beyond / configuration.keep;
}

// What is known already, and new rows on their way to the file. A later row of the same measurement replaces the older,
// and one of a question whose texts are others now all that was measured of the older texts.
class RowFile {
 public:
  static Result<RowFile> open(const std::string& path) {
    RowFile file;
    file.path_ = path;
    if (path.empty()) return file;
    SHALE_ASSIGN(const auto rows, read_quality_rows(path));
    for (const QualityRow& row : rows) file.take(row);
    return file;
  }

  std::vector<QualityRow> rows() const {
    std::vector<QualityRow> all;
    for (const auto& [question, measured] : questions_) {
      for (const auto& [way, row] : measured.rows) all.push_back(row);
    }
    return all;
  }
  // Whether it was measured, with its answer and its prediction where they are wanted.
  bool knows(const QualityRow& wanted, bool with_answer, bool with_prediction) const {
    const auto question = questions_.find(question_of(wanted));
    if (question == questions_.end() || question->second.texts != wanted.texts) return false;
    const auto& rows = question->second.rows;
    const auto found = rows.find(way_of(wanted));
    return found != rows.end() && (!with_answer || !found->second.answer.empty()) &&
           (!with_prediction || !found->second.predicted.empty());
  }
  Status add(std::vector<QualityRow> rows) {
    if (!path_.empty()) {
      std::ofstream out(path_, std::ios::app);
      for (const QualityRow& row : rows) out << line_of(row);
      if (!out.flush()) return fail(ErrorCode::kIo, "cannot write to {}", path_);
    }
    for (QualityRow& row : rows) take(std::move(row));
    return {};
  }

 private:
  using Question = std::tuple<std::string, std::string, std::string, std::size_t>;
  static Question question_of(const QualityRow& row) { return {row.model, row.dataset, row.context, row.question}; }
  using Way = std::tuple<bool, std::uint32_t, std::uint32_t, std::uint32_t, std::string, double>;
  static Way way_of(const QualityRow& row) {
    return {row.question_seen, row.answer_tokens, row.window, row.context_tokens_max, row.method, row.keep};
  }
  struct Measured {
    std::string texts;
    std::map<Way, QualityRow> rows;
  };

  void take(QualityRow row) {
    Measured& measured = questions_[question_of(row)];
    if (measured.texts != row.texts) measured = {.texts = row.texts, .rows = {}};
    measured.rows[way_of(row)] = std::move(row);
  }

  std::string path_;
  std::map<Question, Measured> questions_;
};

class QualityRun {
 public:
  QualityRun(const QualityOptions& options, Serving& serving, RowFile& file, AnswerMetrics& metrics)
      : options_(options), serving_(serving), file_(file), metrics_(metrics) {}

  Status measure(const QualityContext& context, std::span<const SweepConfiguration> configurations,
                 const std::function<void(std::size_t, std::size_t)>& progress);

 private:
  QualityRow row_of(const QualityContext& context, const SweepConfiguration& configuration,
                    std::size_t question) const {
    QualityRow row;
    row.model = options_.serving.model.model;
    row.dataset = context.dataset;
    row.kind = name_of(kind_of(std::string_view(context.text).substr(0, kKindBytes)));
    row.context = context.id;
    row.question = question;
    row.question_seen = options_.sweep.question_seen;
    row.answer_tokens = options_.sweep.answer_tokens;
    row.window = options_.sweep.window;
    row.context_tokens_max = options_.sweep.context_tokens_max;
    row.texts = Hasher().add(context.text).add(context.questions[question]).finish().hex();
    row.method = configuration.method.text();
    row.keep = configuration.keep;
    row.bits = bits_of(configuration, serving_.cache().options().tables);
    return row;
  }
  Status compare(const std::string& answer, const std::string& full, std::span<const std::string> gold,
                 QualityRow& row);

  const QualityOptions& options_;
  Serving& serving_;
  RowFile& file_;
  AnswerMetrics& metrics_;
};

Status QualityRun::compare(const std::string& answer, const std::string& full, std::span<const std::string> gold,
                           QualityRow& row) {
  row.text = answer;
  SHALE_ASSIGN(row.answer, metrics_.compare(answer, full));
  // An answer with a fenced block is code.
  if (full.find("```") != std::string::npos) row.answer["codebleu"] = code_bleu(answer, full);
  if (gold.empty()) return {};
  for (const TextMetric& metric : text_metrics()) {
    if (metric.name == "codebleu") continue;
    row.answer[fmt::format("gold_{}", metric.name)] = best_of(metric, answer, gold);
  }
  return {};
}

Status QualityRun::measure(const QualityContext& context, std::span<const SweepConfiguration> configurations,
                           const std::function<void(std::size_t, std::size_t)>& progress) {
  SweepOptions sweep_options = options_.sweep;
  for (const SweepConfiguration& configuration : configurations) {
    bool known = true;
    for (std::size_t q = 0; q < context.questions.size(); ++q) {
      known &= file_.knows(row_of(context, configuration, q), configuration.generate, sweep_options.predict);
    }
    if (!known) sweep_options.configurations.push_back(configuration);
  }
  if (sweep_options.configurations.empty()) return {};
  sweep_options.stop = interrupted;
  SHALE_ASSIGN(const ContextSweep sweep,
               sweep_context(serving_.engine(), context.text, context.questions, sweep_options, progress));
  std::vector<QualityRow> rows;
  for (const SweepRow& measured : sweep.rows) {
    QualityRow row = row_of(context, measured.configuration, measured.question);
    row.tokens = sweep.tokens;
    row.tokens_cut = sweep.tokens_cut;
    row.bytes = measured.bytes;
    row.full_bytes = sweep.full_bytes;
    row.agreement = measured.forced.agreement;
    row.kl = measured.forced.kl;
    if (measured.answer) {
      SHALE_TRY(compare(*measured.answer, sweep.answers[measured.question], context.answers[measured.question], row));
    }
    if (const auto& predicted = measured.predicted) {
      row.predicted = {{"mass", predicted->mass}, {"error", predicted->error}, {"probe", predicted->probe}};
      row.seconds = {{"measured", sweep.measured_s}, {"signals", sweep.signals_s}, {"probe", sweep.probe_s}};
    }
    if (options_.output.json) print_json(to_json(row));
    rows.push_back(std::move(row));
  }
  return file_.add(std::move(rows));
}

// What the prior of a model is made of, to see how well it predicts; as of one more file.
std::vector<QualityContext> shipped_texts(std::size_t questions_max) {
  std::vector<QualityContext> contexts;
  for (const PriorText& text : prior_texts()) {
    QualityContext& context =
        contexts.emplace_back(std::string(kPriorDataset), std::string(text.name), std::string(text.text));
    for (const std::string_view question : text.questions) {
      if (context.questions.size() < questions_max) context.questions.emplace_back(question);
    }
    context.answers.resize(context.questions.size());
  }
  return contexts;
}

Status report_rows(const QualityOptions& options, std::span<const QualityRow> rows) {
  const auto tables = quality_tables(rows);
  if (!options.output.json) fmt::print("{}", to_markdown(tables));
  if (!options.markdown.empty()) SHALE_TRY(write_file(options.markdown, to_markdown(tables)));
  if (!options.html.empty()) SHALE_TRY(write_file(options.html, to_html(tables, quality_charts(rows))));
  return {};
}

Status run_quality(const QualityOptions& options) {
  SHALE_ASSIGN(const std::vector<SweepConfiguration> configurations, configurations_of(options));
  SHALE_ASSIGN(RowFile file, RowFile::open(options.rows));
  if (options.contexts.empty()) {
    if (options.rows.empty())
      return fail(ErrorCode::kInvalidArgument, "give --contexts to measure, or --rows to report");
    return report_rows(options, file.rows());
  }
  std::vector<QualityContext> contexts;
  for (const std::string& path : options.contexts) {
    SHALE_ASSIGN(auto some, read_quality_contexts(path, options.contexts_max, options.questions_max));
    std::ranges::move(some, std::back_inserter(contexts));
  }
  if (options.sweep.predict) std::ranges::move(shipped_texts(options.questions_max), std::back_inserter(contexts));
  SHALE_TRY(check_names(contexts));
  if (!options.rows.empty()) SHALE_TRY(drop_cut_row(options.rows));
  ServingOptions serving_options = options.serving;
  serving_options.store = false;
  SHALE_ASSIGN(const auto serving, Serving::open(serving_options, options.output));
  AnswerMetrics metrics;
  if (std::ranges::any_of(configurations, &SweepConfiguration::generate)) {
    SHALE_ASSIGN(metrics, AnswerMetrics::open(serving->model().executor()));
  }
  QualityRun sweep(options, *serving, file, metrics);
  Status status;
  {
    Progress progress(options.output, "measuring");
    for (std::size_t i = 0; i < contexts.size() && status; ++i) {
      status = sweep.measure(contexts[i], configurations, [&](std::size_t done, std::size_t total) {
        progress(i * 1000 + done * 1000 / total, contexts.size() * 1000);
      });
      if (!status) status = fail_in(fmt::format("{} {}", contexts[i].dataset, contexts[i].id), status.error());
    }
  }
  // What was measured is reported also where the rest failed or was stopped.
  SHALE_TRY(report_rows(options, file.rows()));
  return status;
}

}  // namespace

void add_quality(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "quality", "Measure what compression does to answers, method by method", run_quality);
  command.footer(kQualityExamples);
  const auto list = [](Option option, const char* type) { option.delimiter(',').type_name(type); };
  list(command.add_option("--contexts", options->contexts, "Contexts with questions"), "FILE,...");
  command.add_option("--contexts-max", options->contexts_max, "Contexts of each file; 0: all").capture_default_str();
  command.add_option("--questions-max", options->questions_max, "Questions of each context")
      .positive()
      .capture_default_str();
  list(command.add_option(
           "--compare", options->methods,
           "[budget:]scorer[+quantizer[/...]] or quantizer (default: every scorer that needs no calibration)"),
       "METHOD,...");
  list(command.add_option("--keeps", options->keeps, "Shares of the tokens to keep")
           .range(1e-6, 1.0)
           .default_str("0.75,0.5,0.25,0.1"),
       "SHARE,...");
  list(command.add_option("--bits", options->bits, "Bits of methods that name no quantizer: 16, 8, 4, 2")
           .default_str("16"),
       "N,...");
  list(command.add_option("--generate", options->generate, "Configurations whose answers are generated, too"),
       "METHOD@KEEP,...");
  command.add_flag("--question-seen", options->sweep.question_seen,
                   "The question stands behind the context while it is compressed");
  command.add_flag("--predict", options->sweep.predict,
                   "Predict agreement in cheaper ways, too, and report how well they order the configurations");
  command.add_option("--answer-tokens", options->sweep.answer_tokens, "Tokens of each answer")
      .range(1, 4096)
      .capture_default_str();
  command
      .add_option("--context-tokens", options->sweep.context_tokens_max,
                  "Longer contexts lose their middle; 0: as many tokens as the model takes")
      .capture_default_str();
  command.add_option("--window", options->sweep.window, "Queries that scorers of the last queries observe")
      .range(1, 512)
      .capture_default_str();
  command.add_option("--rows", options->rows, "Where rows are kept, as JSON lines; a sweep goes on from what is there")
      .type_name("FILE");
  command.add_option("--markdown", options->markdown, "Write the tables there, too").type_name("FILE");
  command.add_option("--html", options->html, "Write tables and charts as one page").type_name("FILE");
  add_serving_options(command, options->serving);
  add_output_options(command, options->output);
}

}  // namespace shale
