#include "profile/drift.h"

#include <algorithm>
#include <utility>

#include "profile/divergence.h"
#include "profile/exact_context.h"
#include "profile/prompt.h"
#include "profile/sweep.h"
#include "profile/teacher.h"

namespace shale {
namespace {

// Some of the rows, evenly spread.
std::vector<QualityRecord> sample(std::span<const QualityRecord> rows, std::uint32_t count) {
  std::vector<QualityRecord> chosen;
  const std::size_t wanted = std::min<std::size_t>(count, rows.size());
  for (std::size_t i = 0; i < wanted; ++i) chosen.push_back(rows[(2 * i + 1) * rows.size() / (2 * wanted)]);
  return chosen;
}

// What the full cache says to the same, in so many tokens at most.
Result<double> alike(Engine& engine, AnswerMetric& metric, const Asked& asked, std::span<const Token> answer,
                     std::uint32_t tokens_max, const Stop& stop) {
  SHALE_ASSIGN(const auto answers, greedy_answers(engine.model(), engine.tokenizer(), {&asked, 1}, tokens_max, stop));
  std::span<const Token> reference = answers.front();
  if (engine.tokenizer().ends_turn(reference.back())) reference = reference.first(reference.size() - 1);
  return metric.compare(engine.tokenizer().text(answer), engine.tokenizer().text(reference));
}

// Judges by agreement: answers are fed one token a step, as they were drawn, since in steps of other shapes other
// weights may run.
Result<double> quality_beside_full(Engine& engine, const Sequence& context, const LossyAnswer& given,
                                   std::uint32_t answer_tokens, const Stop& stop) {
  Model& model = engine.model();
  const std::span question = given.question;
  const auto answer = std::span(given.answer).first(std::min<std::size_t>(answer_tokens, given.answer.size()));
  const auto room = static_cast<std::uint32_t>(question.size() + answer_tokens);
  static_cast<void>(engine.cache().evict_until_free(engine.cache().pool().shape().pages_for(room) + 1));
  if (AnswerMetric* metric = engine.cache().options().metric.get()) {
    // What was cut is compared with as much.
    const std::uint32_t left =
        model.info().context_max - context.length() - static_cast<std::uint32_t>(question.size());
    const auto said = static_cast<std::uint32_t>(answer.size());
    const std::uint32_t tokens_max = given.ended ? std::min(answer_tokens, left) : said;
    return alike(engine, *metric, {&context, question}, answer, tokens_max, stop);
  }
  Sequence sequence = context.fork();
  const Feed before{&sequence, question.first(question.size() - 1)};
  SHALE_TRY(feed(model, {&before, 1}, {}, stop));
  std::size_t same = 0;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const Feed next{&sequence, i == 0 ? question.last(1) : answer.subspan(i - 1, 1)};
    const auto compare = [&](std::size_t, std::size_t, std::span<const float> logits) {
      same += arg_max(logits) == answer[i];
    };
    SHALE_TRY(feed(model, {&next, 1}, compare, stop));
  }
  return static_cast<double>(same) / static_cast<double>(answer.size());
}

}  // namespace

void log_question(Cache& cache, std::span<const Token> context, std::string_view question) {
  if (!cache.metadata_store() || question.empty() || question.size() > kLoggedBytesMax) return;
  static_cast<void>(cache.metadata_store()->record_question(cache.run_of(context), {std::string(question), false}));
}

Result<DriftCheck> check_drift(Engine& engine, std::string_view context, const DriftOptions& options) {
  const MetadataStore* metadata_store = engine.cache().metadata_store();
  std::vector<std::string> questions;
  if (metadata_store) {
    SHALE_ASSIGN(const PromptParts prompt, make_prompt(engine.tokenizer(), context, {}));
    SHALE_ASSIGN(const auto asked, metadata_store->questions(engine.cache().run_of(prompt.context)));
    for (const QuestionRecord& question : asked) {
      if (!question.by_model && questions.size() < options.questions_max) questions.push_back(question.text);
    }
  }
  SHALE_ASSIGN(const AskedContext asked, ask(engine.tokenizer(), context, questions));
  SHALE_ASSIGN(DriftCheck check, check_drift(engine, asked, options));
  check.questions = std::move(questions);
  return check;
}

Result<DriftCheck> check_drift(Engine& engine, const AskedContext& context, const DriftOptions& options) {
  const OwnTime time(options.stop);
  const MetadataStore* metadata_store = engine.cache().metadata_store();
  if (!metadata_store) return fail(ErrorCode::kNotFound, "without a metadata store nothing is known of the context");
  SHALE_ASSIGN(const auto known, metadata_store->qualities(engine.cache().run_of(context.tokens)));
  const std::vector<QualityRecord> rows = sample(known, options.configurations);
  if (rows.empty()) return fail(ErrorCode::kNotFound, "the context was never profiled");
  if (context.questions.empty()) return fail(ErrorCode::kNotFound, "no user asked anything about the context yet");

  DriftCheck check{.configurations = static_cast<std::uint32_t>(rows.size())};
  SweepOptions sweep_options{.answer_tokens = options.answer_tokens, .label = {}, .stop = options.stop};
  AnswerMetric* const metric = engine.cache().options().metric.get();
  for (const QualityRecord& row : rows) {
    sweep_options.configurations.push_back({.method = row.method, .keep = row.keep, .generate = metric != nullptr});
    check.profiled += row.quality / static_cast<double>(rows.size());
  }
  SHALE_ASSIGN(const ContextSweep sweep, sweep_context(engine, context, sweep_options));
  for (const SweepRow& row : sweep.rows) {
    double quality = row.forced.agreement;
    if (metric) {
      SHALE_ASSIGN(quality, metric->compare(row.answer.value_or(""), sweep.answers[row.question]));
    }
    check.observed += quality / static_cast<double>(sweep.rows.size());
  }
  check.drifted = check.observed < check.profiled - options.threshold;
  check.seconds = time.seconds();
  return check;
}

Result<DriftCheck> check_answers(Engine& engine, std::span<const Token> context, std::span<const LossyAnswer> answers,
                                 const DriftOptions& options) {
  const OwnTime time(options.stop);
  DriftCheck check{.answers = static_cast<std::uint32_t>(answers.size())};
  SHALE_ASSIGN(const ExactContext exact, exact_context(engine, context, {}, {.store = false}, options.stop));
  for (const LossyAnswer& given : answers) {
    SHALE_ASSIGN(const double quality,
                 quality_beside_full(engine, exact.sequence, given, options.answer_tokens, options.stop));
    check.observed += quality / static_cast<double>(answers.size());
    check.profiled += given.expected / static_cast<double>(answers.size());
  }
  check.drifted = check.observed < check.profiled - options.threshold;
  check.seconds = time.seconds();
  return check;
}

}  // namespace shale
