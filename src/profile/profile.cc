#include "profile/profile.h"

#include <algorithm>
#include <utility>

#include "profile/exact_context.h"
#include "profile/teacher.h"

namespace shale {
namespace {

class Profiler {
 public:
  Profiler(Engine& engine, const ProfileOptions& options, std::span<const Method> methods, ExactContext exact,
           std::span<const Reference> references, std::size_t counted)
      : engine_(engine),
        options_(options),
        methods_(methods),
        exact_(std::move(exact)),
        references_(references),
        counted_(counted),
        batch_(engine.model(), references, options.stop) {}

  Result<std::vector<ProfileRow>> run(const std::function<void(std::size_t, std::size_t)>& progress);

 private:
  std::vector<double> keeps(const Method& method) const {
    return method.scorer.empty() ? std::vector<double>{1.0} : options_.keeps;
  }
  Status add(const CompressedRun& run, double keep, ProfileRow& row, std::span<Divergence> results);
  void average(ProfileRow& row, std::span<const Divergence> results) const;

  Engine& engine_;
  const ProfileOptions& options_;
  std::span<const Method> methods_;
  ExactContext exact_;
  std::span<const Reference> references_;
  std::size_t counted_;  // references whose results make the means; the rest are held out
  ForcedBatch batch_;
};

// Decodes one configuration and has it asked with the batch; where the pool is too small for more, the batch runs
// first.
Status Profiler::add(const CompressedRun& run, double keep, ProfileRow& row, std::span<Divergence> results) {
  Cache& cache = engine_.cache();
  Executor& executor = engine_.model().executor();
  const RealClock clock;
  for (;;) {
    Sequence sequence(cache.pool());
    const double start_s = clock.now_s();
    Status status = cache.decompress(run, keep, sequence, executor);
    row.decode_s = clock.now_s() - start_s;
    if (status && !cache.make_room(batch_.slabs_needed())) {
      status =
          fail(ErrorCode::kFull, "the page pool is too small to ask questions of a compressed context of {} tokens",
               exact_.run.tokens.size());
    }
    if (status) {
      batch_.add(sequence, results);
      return {};
    }
    if (batch_.empty() || status.error().code != ErrorCode::kFull) return status;
    sequence.clear();  // the batch counts on its pages
    SHALE_TRY(batch_.run());
  }
}

void Profiler::average(ProfileRow& row, std::span<const Divergence> results) const {
  for (const Divergence& one : results.first(counted_)) {
    row.agreement += one.agreement;
    row.kl += one.kl;
  }
  row.agreement /= static_cast<double>(counted_);
  row.kl /= static_cast<double>(counted_);
  row.questions = static_cast<std::uint32_t>(counted_);
  const auto held_out = results.subspan(counted_);
  row.held_out.assign(held_out.begin(), held_out.end());
}

Result<std::vector<ProfileRow>> Profiler::run(const std::function<void(std::size_t, std::size_t)>& progress) {
  std::vector<ProfileRow> rows;
  for (const Method& method : methods_) {
    for (const double keep : keeps(method)) rows.push_back({.method = method, .keep = keep, .held_out = {}});
  }
  std::vector<std::vector<Divergence>> results(rows.size(), std::vector<Divergence>(references_.size()));
  CompressedRun run;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SHALE_TRY(check_stop(options_.stop));
    ProfileRow& row = rows[i];
    if (i == 0 || row.method != rows[i - 1].method) {
      SHALE_ASSIGN(run, engine_.cache().compress(exact_.run, row.method, exact_.sequence, engine_.model().executor()));
    }
    row.bytes = run.bytes_for(row.keep);
    SHALE_TRY(add(run, row.keep, row, results[i]));
    if (batch_.full()) SHALE_TRY(batch_.run());
    if (progress) progress(i + 1, rows.size());
  }
  SHALE_TRY(batch_.run());
  for (std::size_t i = 0; i < rows.size(); ++i) average(rows[i], results[i]);
  return rows;
}

Result<std::vector<Method>> methods_to_measure(const Cache& cache, const std::vector<std::string>& named) {
  std::vector<Method> methods = {Method::full()};
  for (const std::string& text : named) {
    SHALE_ASSIGN(Method method, Method::parse(text));
    if (!method.is_full()) methods.push_back(std::move(method));
  }
  if (named.empty()) methods = cache.methods();
  return methods;
}

// The context's own questions, or new ones by the model, of which there are `by_model`, the first.
struct Chosen {
  std::vector<std::string> questions;
  std::uint32_t by_model = 0;
};
Result<Chosen> choose_questions(Engine& engine, std::string_view context, std::vector<std::string> given,
                                std::uint32_t questions_max) {
  Chosen chosen{std::move(given)};
  const Catalogue* catalogue = engine.cache().catalogue();
  if (chosen.questions.empty() && catalogue) {
    SHALE_ASSIGN(const PromptParts prompt, make_prompt(engine.tokenizer(), context, {}));
    SHALE_ASSIGN(const auto known, catalogue->questions(engine.cache().run_of(prompt.context)));
    for (const QuestionRecord& question : known) chosen.questions.push_back(question.text);
  }
  if (chosen.questions.empty()) {
    SHALE_ASSIGN(WrittenQuestions written, write_questions(engine, context, questions_max));
    chosen = {std::move(written.questions), written.by_model};
  }
  if (chosen.questions.size() > questions_max) chosen.questions.resize(questions_max);
  if (chosen.questions.empty()) return fail(ErrorCode::kInvalidArgument, "no question to profile the context with");
  return chosen;
}

Status record_questions(Cache& cache, const ContextProfile& profile) {
  Catalogue* catalogue = cache.catalogue();
  for (std::size_t i = 0; catalogue && i < profile.questions.size(); ++i) {
    SHALE_TRY(catalogue->record_question(profile.run, {profile.questions[i], i < profile.questions_by_model}));
  }
  return {};
}

Status record_rows(Cache& cache, const ContextProfile& profile) {
  Catalogue* catalogue = cache.catalogue();
  if (!catalogue) return {};
  for (const ProfileRow& row : profile.rows) {
    cache.costs().decoded(row.method.quantizer, row.bytes, row.decode_s);
    if (row.method.is_full()) continue;  // what quality is measured against
    SHALE_TRY(catalogue->record_quality({.key = profile.run,
                                         .method = row.method,
                                         .keep = row.keep,
                                         .agreement = row.agreement,
                                         .kl = row.kl,
                                         .questions = row.questions}));
  }
  return {};
}

// The last of the context's questions, from `counted` on, are held out.
Result<ContextProfile> measure(Engine& engine, const AskedContext& context, std::size_t counted,
                               const ProfileOptions& options,
                               const std::function<void(std::size_t, std::size_t)>& progress) {
  const RealClock clock;
  const double start_s = clock.now_s();
  Cache& cache = engine.cache();
  AskedContext whole = context;
  SHALE_TRY(keep_whole_blocks(whole, cache.block_tokens()));
  SHALE_ASSIGN(const std::vector<Method> methods, methods_to_measure(cache, options.methods));
  SHALE_ASSIGN(const ScorerNeeds needs, needs_of(cache, methods));
  SHALE_ASSIGN(ExactContext exact, exact_context(engine, whole.tokens, needs, options.label, options.stop));
  SHALE_ASSIGN(const std::vector<Reference> references,
               answer_questions(engine.model(), engine.tokenizer(), exact.sequence, whole.questions,
                                std::max(options.answer_tokens, 1U), options.stop));
  ContextProfile profile{.run = cache.run_of(whole.tokens), .tokens = static_cast<std::uint32_t>(whole.tokens.size())};
  for (std::size_t i = counted; i < references.size(); ++i) {
    profile.held_out_answers.push_back(engine.tokenizer().text(references[i].answer));
  }
  Profiler profiler(engine, options, methods, std::move(exact), references, counted);
  SHALE_ASSIGN(profile.rows, profiler.run(progress));
  SHALE_TRY(record_rows(cache, profile));
  profile.seconds = clock.now_s() - start_s;
  return profile;
}

}  // namespace

Result<ContextProfile> profile_context(Engine& engine, std::string_view context, std::vector<std::string> questions,
                                       const ProfileOptions& options,
                                       const std::function<void(std::size_t, std::size_t)>& progress) {
  const RealClock clock;
  const double start_s = clock.now_s();
  Cache& cache = engine.cache();
  SHALE_ASSIGN(Chosen chosen, choose_questions(engine, context, std::move(questions), options.questions_max));
  std::vector<std::string> all = chosen.questions;
  all.insert(all.end(), options.held_out.begin(), options.held_out.end());
  SHALE_ASSIGN(const AskedContext asked, ask(engine.tokenizer(), context, all));
  SHALE_ASSIGN(ContextProfile profile, measure(engine, asked, chosen.questions.size(), options, progress));
  profile.questions = std::move(chosen.questions);
  profile.questions_by_model = chosen.by_model;
  SHALE_TRY(record_questions(cache, profile));
  profile.seconds = clock.now_s() - start_s;
  return profile;
}

Result<ContextProfile> profile_context(Engine& engine, const AskedContext& context, const ProfileOptions& options) {
  return measure(engine, context, context.questions.size(), options, {});
}

}  // namespace shale
