#include "profile/profile.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/storing.h"

namespace shale {
namespace {

// The keeps at which it is measured: a method that drops no token, at one.
std::vector<double> keeps_of(const Method& method, const ProfileOptions& options) {
  return method.scorer.empty() ? std::vector{1.0} : options.keeps;
}

// Blocks that answers to all questions of a context need beside it.
std::uint32_t blocks_to_answer(Engine& engine, const AskedContext& context, std::uint32_t answer_tokens) {
  std::uint32_t blocks = 0;
  for (const auto& question : context.questions) {
    const std::size_t tokens = question.size() + answer_tokens;
    blocks += engine.model().page_shape().pages_for(static_cast<std::uint32_t>(tokens)) + 1;
  }
  return blocks;
}

// One method at all keeps.
class MethodProfiler {
 public:
  MethodProfiler(Engine& engine, const ProfileOptions& options, ExactContext& exact, const AskedContext& asked,
                 std::span<const Reference> references, std::size_t counted, const Stop& stop)
      : engine_(engine),
        options_(options),
        exact_(exact),
        asked_(asked),
        references_(references),
        counted_(counted),
        stop_(stop),
        batch_(engine.model(), references, stop) {}

  Result<std::vector<ProfileRow>> run(const Method& method, const std::function<void()>& on_row);

 private:
  Result<CompressedRun> compress(const Method& method);
  Status expand(const CompressedRun& run, ProfileRow& row, Sequence& into);
  Status add(const CompressedRun& run, ProfileRow& row, std::span<Divergence> results);
  Status compare_answers(const Sequence& compressed, ProfileRow& row);
  void average(ProfileRow& row, std::span<const Divergence> results) const;
  // Blocks that stay for later requests: half of the pool, unless a single configuration needs more.
  std::uint32_t left_to_requests() const { return batch_.empty() ? 0 : engine_.cache().pool().blocks_total() / 2; }

  Engine& engine_;
  const ProfileOptions& options_;
  ExactContext& exact_;
  const AskedContext& asked_;
  std::span<const Reference> references_;
  std::size_t counted_;  // references whose results make the means; the rest are held out
  const Stop& stop_;
  ForcedBatch batch_;
};

// In pieces, between which requests may go on.
Result<CompressedRun> MethodProfiler::compress(const Method& method) {
  const Cache& cache = engine_.cache();
  const std::uint32_t tokens = cache.whole_blocks(exact_.run.tokens.size());
  SHALE_ASSIGN(RunCompressor compressor,
               RunCompressor::start(cache.codec(), exact_.sequence, 0, tokens, method, exact_.run.statistics));
  SHALE_TRY(step_through(compressor, engine_.model().executor(), stop_));
  return compressor.finish();
}

// Notes what decoding alone took.
Status MethodProfiler::expand(const CompressedRun& run, ProfileRow& row, Sequence& into) {
  const RealClock clock;
  double start_s = clock.now_s();
  row.decode_s = 0;
  SHALE_ASSIGN(RunExpander expander, engine_.cache().expand(run, row.keep, into, left_to_requests()));
  for (bool more = true; more;) {
    SHALE_ASSIGN(more, expander.step(engine_.model().executor()));
    row.decode_s += clock.now_s() - start_s;
    SHALE_TRY(check_stop(stop_));
    start_s = clock.now_s();
  }
  return {};
}

// Decodes one configuration and has it asked with the batch; where the pool has no room for more, the batch runs first.
Status MethodProfiler::add(const CompressedRun& run, ProfileRow& row, std::span<Divergence> results) {
  Cache& cache = engine_.cache();
  for (;;) {
    Sequence sequence(cache.pool());
    Status status = expand(run, row, sequence);
    if (status && !cache.evict_until_free(batch_.blocks_needed(), left_to_requests())) {
      status =
          fail(ErrorCode::kFull, "the page pool is too small to ask questions of a compressed context of {} tokens",
               exact_.run.tokens.size());
    }
    if (status) {
      batch_.add(sequence, results);
      return compare_answers(sequence, row);
    }
    if (batch_.empty() || status.error().code != ErrorCode::kFull) return status;
    sequence.clear();  // the batch counts on its pages
    SHALE_TRY(batch_.run());
  }
}

// In another metric than agreement. What waits to be fed goes first: it holds pages.
Status MethodProfiler::compare_answers(const Sequence& compressed, ProfileRow& row) {
  AnswerMetric* const metric = engine_.cache().options().metric.get();
  if (!metric) return {};
  SHALE_TRY(batch_.run());
  std::vector<Asked> asked;
  for (const auto& question : asked_.questions) asked.push_back({&compressed, question});
  static_cast<void>(engine_.cache().evict_until_free(blocks_to_answer(engine_, asked_, options_.answer_tokens)));
  SHALE_ASSIGN(const auto answers, greedy_answers(engine_.model(), engine_.tokenizer(), asked,
                                                  std::max(options_.answer_tokens, 1U), stop_));
  for (std::size_t i = 0; i < counted_; ++i) {
    const Tokenizer& words = engine_.tokenizer();
    SHALE_ASSIGN(const double alike, metric->compare(words.text(answers[i]), words.text(references_[i].answer)));
    row.quality += alike / static_cast<double>(counted_);
  }
  return {};
}

void MethodProfiler::average(ProfileRow& row, std::span<const Divergence> results) const {
  for (const Divergence& one : results.first(counted_)) {
    row.agreement += one.agreement;
    row.kl += one.kl;
  }
  row.agreement /= static_cast<double>(counted_);
  row.kl /= static_cast<double>(counted_);
  if (!engine_.cache().options().metric) row.quality = row.agreement;
  row.questions = static_cast<std::uint32_t>(counted_);
  const auto held_out = results.subspan(counted_);
  row.held_out.assign(held_out.begin(), held_out.end());
}

Result<std::vector<ProfileRow>> MethodProfiler::run(const Method& method, const std::function<void()>& on_row) {
  const std::vector<double> keeps = keeps_of(method, options_);
  std::vector<std::vector<Divergence>> results(keeps.size(), std::vector<Divergence>(references_.size()));
  std::vector<ProfileRow> rows;
  SHALE_ASSIGN(const CompressedRun run, compress(method));
  for (std::size_t i = 0; i < keeps.size(); ++i) {
    SHALE_TRY(check_stop(stop_));
    ProfileRow& row = rows.emplace_back(ProfileRow{.method = method, .keep = keeps[i], .held_out = {}});
    row.bytes = run.bytes_for(row.keep);
    SHALE_TRY(add(run, row, results[i]));
    if (batch_.full()) SHALE_TRY(batch_.run());
    on_row();
  }
  SHALE_TRY(batch_.run());
  for (std::size_t i = 0; i < rows.size(); ++i) average(rows[i], results[i]);
  return rows;
}

Result<std::vector<Method>> methods_to_measure(const Cache& cache, const ProfileOptions& options) {
  std::vector<Method> methods;
  if (options.methods.empty()) methods = cache.methods();
  for (const std::string& text : options.methods) {
    SHALE_ASSIGN(Method method, Method::parse(text));
    methods.push_back(std::move(method));
  }
  std::erase_if(methods, &Method::is_full);
  if (options.full) methods.insert(methods.begin(), Method::full());
  if (methods.empty()) return fail(ErrorCode::kInvalidArgument, "no method to profile the context with");
  return methods;
}

// Answers end where the model's context does.
Status leave_room_for_answers(std::uint32_t context_max, const AskedContext& asked, ProfileOptions& options) {
  std::size_t tokens = 0;
  for (const auto& question : asked.questions) tokens = std::max(tokens, asked.tokens.size() + question.size());
  if (tokens >= context_max) {
    return fail(ErrorCode::kInvalidArgument,
                "a context of {} tokens with its questions leaves no room in the model's {}", asked.tokens.size(),
                context_max);
  }
  options.answer_tokens = std::min(options.answer_tokens, static_cast<std::uint32_t>(context_max - tokens));
  return {};
}

// The context's own questions, or new ones by the model, of which there are `by_model`, the first.
struct Chosen {
  std::vector<std::string> questions;
  std::uint32_t by_model = 0;
};
Result<Chosen> choose_questions(Engine& engine, std::string_view context, std::vector<std::string> given,
                                std::uint32_t questions_max) {
  Chosen chosen{std::move(given)};
  const MetadataStore* metadata_store = engine.cache().metadata_store();
  if (chosen.questions.empty() && metadata_store) {
    SHALE_ASSIGN(const PromptParts prompt, make_prompt(engine.tokenizer(), context, {}));
    SHALE_ASSIGN(const auto known, metadata_store->questions(engine.cache().run_of(prompt.context)));
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
  MetadataStore* metadata_store = cache.metadata_store();
  for (std::size_t i = 0; metadata_store && i < profile.questions.size(); ++i) {
    SHALE_TRY(metadata_store->record_question(profile.run, {profile.questions[i], i < profile.questions_by_model}));
  }
  return {};
}

// The last of the context's questions, from `counted` on, are held out.
Result<ContextProfile> measure(Engine& engine, AskedContext context, std::size_t counted, const ProfileOptions& options,
                               const std::function<void(std::size_t, std::size_t)>& progress) {
  SHALE_ASSIGN(ContextProfiling profiling, ContextProfiling::begin(engine, std::move(context), counted, options));
  for (bool more = true; more;) {
    SHALE_ASSIGN(more, profiling.step({}, progress));
  }
  return profiling.profile();
}

}  // namespace

ContextProfiling::ContextProfiling(Engine& engine, AskedContext context, std::size_t counted, ProfileOptions options)
    : engine_(&engine), context_(std::move(context)), counted_(counted), options_(std::move(options)) {}

Result<ContextProfiling> ContextProfiling::begin(Engine& engine, AskedContext context, std::size_t counted,
                                                 ProfileOptions options) {
  Cache& cache = engine.cache();
  ContextProfiling profiling(engine, std::move(context), counted, std::move(options));
  AskedContext& whole = profiling.context_;
  SHALE_TRY(keep_whole_blocks(whole, cache.block_tokens()));
  SHALE_TRY(leave_room_for_answers(engine.model().info().context_max, whole, profiling.options_));
  SHALE_ASSIGN(profiling.methods_, methods_to_measure(cache, profiling.options_));
  SHALE_ASSIGN(profiling.needs_, needs_of(cache, profiling.methods_));
  profiling.profile_.run = cache.run_of(whole.tokens);
  profiling.profile_.tokens = static_cast<std::uint32_t>(whole.tokens.size());
  profiling.profile_.kind = kind_of(engine.tokenizer(), whole.tokens);
  return profiling;
}

// The context, and the full cache's answers where they are not known yet.
Status ContextProfiling::prepare(const Stop& stop) {
  SHALE_ASSIGN(exact_, exact_context(*engine_, context_.tokens, needs_, {options_.label, false}, stop));
  if (!references_.empty()) return {};
  static_cast<void>(engine_->cache().evict_until_free(blocks_to_answer(*engine_, context_, options_.answer_tokens)));
  SHALE_ASSIGN(references_, answer_questions(engine_->model(), engine_->tokenizer(), exact_->sequence,
                                             context_.questions, std::max(options_.answer_tokens, 1U), stop));
  return {};
}

// What was not yet; where another process is writing, with a later piece, if there is one.
Status ContextProfiling::record() {
  Cache& cache = engine_->cache();
  MetadataStore* metadata_store = cache.metadata_store();
  const auto rows = std::span(std::as_const(profile_.rows)).subspan(recorded_);
  const Status recorded = !metadata_store ? Status() : metadata_store->together([&]() -> Status {
    SHALE_TRY(metadata_store->record_kind(profile_.run, profile_.kind));
    for (const ProfileRow& row : rows) {
      cache.costs().decoded(row.method.quantizer, row.bytes, row.decode_s);
      if (row.method.is_full()) continue;  // what quality is measured against
      const QualityRecord measured{profile_.run, row.method, row.keep, row.quality, row.kl, row.questions};
      SHALE_TRY(options_.adds ? metadata_store->add_quality(measured) : metadata_store->record_quality(measured));
    }
    return {};
  });
  const bool later = options_.record_later || next_method_ + 1 < methods_.size();
  if (later && !recorded && recorded.error().code == ErrorCode::kBusy) return {};
  recorded_ = profile_.rows.size();
  return recorded;
}

Status ContextProfiling::measure(const Method& method, const Stop& stop,
                                 const std::function<void(std::size_t, std::size_t)>& progress) {
  std::size_t total = 0, done = done_;
  for (const Method& each : methods_) total += keeps_of(each, options_).size();
  MethodProfiler profiler(*engine_, options_, *exact_, context_, references_, counted_, stop);
  SHALE_ASSIGN(std::vector<ProfileRow> rows, profiler.run(method, [&] {
    if (progress) progress(++done, total);
  }));
  done_ += rows.size();
  std::ranges::move(rows, std::back_inserter(profile_.rows));
  return record();
}

Result<bool> ContextProfiling::step(const Stop& stop, const std::function<void(std::size_t, std::size_t)>& progress) {
  const Stop either(stop, options_.stop);
  const OwnTime time(either);
  SHALE_TRY(check_stop(either));
  const bool first = references_.empty(), measured = next_method_ == methods_.size();
  if (measured) SHALE_TRY(record());  // for which the context need not be computed again
  const bool unrecorded = measured && recorded_ < profile_.rows.size();
  if (!exact_ && !unrecorded && (!measured || options_.store)) SHALE_TRY(prepare(either));
  if (!first && !measured) {
    SHALE_TRY(measure(methods_[next_method_], either, progress));
    ++next_method_;
  }
  profile_.seconds += time.seconds();
  if (next_method_ < methods_.size() || recorded_ < profile_.rows.size()) return true;
  // Only now is it known in which form.
  if (options_.store) engine_->cache().store(std::move(exact_->run), exact_->sequence);
  return false;
}

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
