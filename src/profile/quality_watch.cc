#include "profile/quality_watch.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace shale {
namespace {

constexpr std::size_t kQuestionTokensMax = 512;  // longer ones are no questions
constexpr double kNothingKnown = 0.5;            // spread of a quality of which nothing is known
constexpr std::size_t kLookedAtClosely = 64;     // contexts: what is known of each takes some time to find
constexpr std::size_t kCameMax = 128;            // what is noted after a piece of work; earlier ones are not
// After a piece of work for which the pool had no room, twice as long after the next, and how many give it up.
constexpr double kPauseS = 2;
constexpr unsigned kPausesMax = 5;
constexpr int kWaitMs = 5;

bool chooses_by_quality(const Cache& cache) {
  return cache.weighs_quality() && !std::ranges::all_of(cache.methods(), &Method::is_full);
}

}  // namespace

QualityWatch::QualityWatch(const QualityWatchOptions& options, Engine& engine)
    : options_(options), engine_(engine), able_(chooses_by_quality(engine.cache())) {
  if (able_ && options.prior) prior_.emplace(engine, PriorOptions{.answer_tokens = options.check.answer_tokens});
  if (prior_) stats_.prior_texts_left = prior_->left();
  if (able_) engine.cache().metadata_store()->wait_at_most(kWaitMs);
}

QualityWatch::~QualityWatch() {
  if (able_) engine_.cache().metadata_store()->wait_at_most(kMetadataStoreWaitMs);
}

// The one that was used last, from now on.
QualityWatch::Context& QualityWatch::context_of(std::span<const Token> tokens, const std::string& label) {
  const Hash128 run = engine_.cache().run_of(tokens);
  const auto known = std::ranges::find(contexts_, run, &Context::run);
  if (known != contexts_.end()) {
    contexts_.splice(contexts_.begin(), contexts_, known);
  } else {
    tokens_ += tokens.size();
    contexts_.push_front({.run = run,
                          .asked = {.tokens = {tokens.begin(), tokens.end()}},
                          .label = label,
                          .accesses = Frequency(engine_.cache().options().frequency_half_life_s)});
    while (contexts_.size() > 1 && (contexts_.size() > options_.contexts_max || tokens_ > options_.tokens_max)) {
      tokens_ -= contexts_.back().asked.tokens.size();
      contexts_.pop_back();
    }
  }
  return contexts_.front();
}

// As the newest. False where it was asked before.
bool QualityWatch::add_question(Context& context, const std::vector<Token>& question) {
  auto& questions = context.asked.questions;
  const bool again = std::erase(questions, question) > 0;
  questions.push_back(question);
  if (questions.size() > options_.check.questions_max) questions.erase(questions.begin());
  return !again;
}

// What somebody salts is not for others to look at.
bool QualityWatch::may_look_at(const Request& request) const {
  if (!able_ || request.spans.size() < 2 || !request.policy.salt.empty()) return false;
  const PrefixSpan& question = request.spans.back();
  const auto before = std::span(request.spans).first(request.spans.size() - 1);
  return std::ranges::all_of(before, &PrefixSpan::store) && !question.store &&
         question.tokens.size() <= kQuestionTokensMax;
}

void QualityWatch::let_go() {
  if (working_) return;
  if (prior_) prior_->let_go();
  if (profiling_) profiling_->let_go();
}

bool QualityWatch::holds_pages() const {
  return (prior_ && prior_->holds_pages()) || (profiling_ && profiling_->holds_pages());
}

// Requests may come for a long time before it is measuring's turn again.
void QualityWatch::note_later(const Request& request, std::optional<Response> response) {
  if (!may_look_at(request)) return;
  came_.push_back({request, std::move(response)});
  if (came_.size() > kCameMax) came_.pop_front();
}

void QualityWatch::on_request(const Request& request) {
  if (!options_.beside) let_go();
  working_ ? note_later(request, {}) : note_request(request);
}

void QualityWatch::on_response(const Request& request, const Response& response) {
  working_ ? note_later(request, response) : note_response(request, response);
}

void QualityWatch::note_request(const Request& request) {
  if (!may_look_at(request)) return;
  std::vector<Token> tokens;
  for (std::size_t i = 0; i + 1 < request.spans.size() && tokens.size() < options_.context_tokens_min; ++i) {
    tokens.insert(tokens.end(), request.spans[i].tokens.begin(), request.spans[i].tokens.end());
  }
  if (tokens.size() < options_.context_tokens_min) return;
  const std::vector<Token>& question = request.spans.back().tokens;
  Context& context = context_of(tokens, request.spans.front().label);
  context.accesses.access(engine_.cache().clock().now_s());
  if (!add_question(context, question)) return;
  ++context.new_questions;
  ++stats_.questions;
  if (!options_.keep_questions) return;
  context.unlogged.push_back(question);
  if (context.unlogged.size() > MetadataStore::kQuestionsMax) context.unlogged.erase(context.unlogged.begin());
}

// Answers to compare are greedy ones, unpenalized, over a form that nobody named, whose worth was expected; over
// several, they are of the one that is worth least.
void QualityWatch::note_response(const Request& request, const Response& response) {
  const auto lossy = std::ranges::min_element(response.sources, {}, [](const SourceUsed& each) {
    return std::pair(each.quality.value_or(1), each.method.is_full());
  });
  const std::optional<double> expected = response.expected_quality();
  const bool comparable = !response.error && !response.tokens.empty() && request.sampling.temperature == 0 &&
                          !request.sampling.penalizes() && !request.policy.named() && !request.budget && expected;
  if (!may_look_at(request) || !comparable) return;
  if (lossy == response.sources.end() || lossy->method.is_full()) return;
  std::vector<Token> prompt;
  std::vector<std::size_t> ends;
  for (const PrefixSpan& span : request.spans) {
    prompt.insert(prompt.end(), span.tokens.begin(), span.tokens.end());
    ends.push_back(prompt.size());
  }
  ends.pop_back();
  const Cache& cache = engine_.cache();
  const std::vector<BlockKey> keys = cache.keys_of(prompt);
  const auto end = std::ranges::find_if(ends, [&](std::size_t tokens) {
    const std::size_t blocks = tokens / cache.block_tokens();
    return blocks > 0 && run_name(keys[blocks - 1]) == lossy->run;
  });
  if (end == ends.end()) return;
  Context& context = context_of(std::span(prompt).first(*end), request.spans.front().label);
  const auto first = std::ranges::find_if(ends, [&](std::size_t n) { return n >= options_.context_tokens_min; });
  if (end > first) context.accesses.access(cache.clock().now_s());  // else it was counted when it was asked
  add_question(context, request.spans.back().tokens);
  LossyAnswer answer{.question = {prompt.begin() + cache.whole_blocks(*end), prompt.end()},
                     .answer = response.tokens,
                     .ended = response.stop == StopReason::kEndOfTurn,
                     .expected = *expected};
  auto& answers = context.answers;
  if (std::ranges::any_of(answers, [&](const LossyAnswer& other) { return other.same_as(answer); })) return;
  answers.push_back(std::move(answer));
  if (answers.size() > options_.check.questions_max) answers.erase(answers.begin());
  ++context.new_answers;
}

// Of one context. False where nothing was to be noted or recalled.
bool QualityWatch::log_questions() {
  if (!options_.keep_questions) return false;
  for (Context& context : contexts_) {
    if (context.recalled && context.unlogged.empty()) continue;
    if (!std::exchange(context.recalled, true)) recall_questions(context);
    const Status logged = engine_.cache().metadata_store()->together([&]() -> Status {
      for (const auto& question : context.unlogged) {
        log_question(engine_.cache(), context.asked.tokens, words_of(engine_.tokenizer(), question));
      }
      return {};
    });
    if (!logged && logged.error().code == ErrorCode::kBusy) return false;  // again, soon
    context.unlogged.clear();
    return true;
  }
  return false;
}

// Before those that were asked here, phrased as they are.
void QualityWatch::recall_questions(Context& context) {
  const auto known = engine_.cache().metadata_store()->questions(context.run);
  if (!known) return;
  auto& questions = context.asked.questions;
  std::vector<std::string> asked;
  for (const auto& question : questions) asked.push_back(words_of(engine_.tokenizer(), question));
  for (const QuestionRecord& record : *known) {
    if (record.by_model || questions.size() >= options_.check.questions_max) continue;
    if (std::ranges::find(asked, record.text) != asked.end()) continue;
    questions.insert(questions.begin(), phrase_like(engine_.tokenizer(), questions.back(), record.text));
    ++stats_.recalled;
  }
}

bool QualityWatch::work(const Stop& stop) {
  if (!able_ || working_) return false;
  working_ = true;
  const bool worked = work_on(stop);
  working_ = false;
  for (const Came& each : std::exchange(came_, {})) {
    if (each.response) {
      note_response(each.request, *each.response);
    } else {
      note_request(each.request);
    }
  }
  return worked;
}

bool QualityWatch::work_on(const Stop& stop) {
  if (log_questions()) return true;
  if (engine_.cache().clock().now_s() < goes_on_s_) return false;
  Context* context = nullptr;
  Status done;
  if (profiling_) {
    done = go_on(stop);
  } else if ((context = context_to_check())) {
    done = look(*context, stop);
  } else if (const Result<bool> worked = measure_prior(stop); !worked) {
    done = std::unexpected(worked.error());
  } else if (*worked) {
    pauses_ = 0;
    return true;
  } else if ((context = context_to_profile())) {
    done = begin(*context, true);
  } else {
    return false;
  }
  if (done) {
    pauses_ = 0;
    return true;
  }
  // What requests took of the pool meanwhile, they give back, and so does what is being stored.
  const bool others = engine_.running() > 0 || engine_.cache().blocks_waiting_to_be_stored() > 0;
  const bool crowded_out = done.error().code == ErrorCode::kFull && others && pauses_ < kPausesMax;
  if (crowded_out) goes_on_s_ = engine_.cache().clock().now_s() + kPauseS * (1u << pauses_++);
  if (done.error().code == ErrorCode::kCancelled || crowded_out) {
    ++stats_.interrupted;
    if (prior_) prior_->let_go();
    if (profiling_) profiling_->let_go();
    return true;
  }
  ++stats_.failed;
  pauses_ = 0;
  if (!context && !profiling_) prior_->pass_over();
  profiling_.reset();
  if (context) context->new_questions = context->new_answers = 0;  // would fail again
  return true;
}

Result<bool> QualityWatch::measure_prior(const Stop& stop) {
  if (!prior_) return false;
  const OwnTime time(stop);
  auto more = prior_->step(stop);
  stats_.prior_seconds += time.seconds();
  stats_.prior_texts = prior_->measured();
  stats_.prior_texts_left = prior_->left();
  if (more && !*more) prior_.reset();
  return more;
}

bool QualityWatch::measures_prior() { return prior_ && !profiling_ && !context_to_check(); }

// Profiles are checked once enough was asked or answered; of those that were never made only what was expected of
// answers can be.
QualityWatch::Context* QualityWatch::context_to_check() {
  for (Context& context : contexts_) {
    if (context.new_answers >= options_.questions_between) return &context;
    if (context.new_questions < options_.questions_between) continue;
    if (is_profiled(context)) return &context;
    if (!options_.profile_new) context.new_questions = 0;
  }
  return nullptr;
}

QualityWatch::Context* QualityWatch::context_to_profile() {
  if (!options_.profile_new) return nullptr;
  struct Choice {
    double worth;
    Context* context;
  };
  std::vector<Choice> choices;
  for (Context& context : contexts_) {
    if (has_outgrown_profile(context)) choices.push_back({use(context), &context});
  }
  const auto most = choices.begin() + static_cast<std::ptrdiff_t>(std::min(choices.size(), kLookedAtClosely));
  std::ranges::partial_sort(choices, most, std::greater(), &Choice::worth);
  choices.erase(most, choices.end());
  for (auto& [worth, context] : choices) worth *= gain(*context);
  const auto best = std::ranges::max_element(choices, {}, &Choice::worth);
  return best == choices.end() ? nullptr : best->context;
}

// By some method at least.
bool QualityWatch::is_profiled(const Context& context) const {
  Cache& cache = engine_.cache();
  return std::ranges::any_of(cache.methods(), [&](const Method& method) {
    return cache.metadata_store()->questions_measured(context.run, method) > 0;
  });
}

// By every method; 0: by not all of them.
std::uint32_t QualityWatch::questions_of_profile(const Context& context) const {
  Cache& cache = engine_.cache();
  std::uint32_t least = options_.check.questions_max;
  for (const Method& method : cache.methods()) {
    if (!method.is_full()) least = std::min(least, cache.metadata_store()->questions_measured(context.run, method));
  }
  return least;
}

// Twice as many questions are known as there were for its profile, or for the last try to make one; or all that are
// kept.
bool QualityWatch::has_outgrown_profile(Context& context) {
  const auto outgrown = [&] {
    const std::size_t asked = context.asked.questions.size();
    return asked > context.tried_on && asked >= std::min(2 * context.tried_on, options_.check.questions_max);
  };
  if (!outgrown()) return false;
  context.tried_on = std::max(context.tried_on, questions_of_profile(context));  // by an earlier process
  return outgrown();
}

// How often it is asked, times how much it takes of the tiers.
double QualityWatch::use(const Context& context) const {
  return context.accesses.value(engine_.cache().clock().now_s()) * static_cast<double>(context.asked.tokens.size());
}

// How much less the qualities of all that the context may become would spread, on average (quality_table.h).
double QualityWatch::gain(const Context& context) const {
  Cache& cache = engine_.cache();
  double spread = 0;
  std::size_t configurations = 0;
  for (const Method& method : cache.methods()) {
    for (const double keep : kKeepGrid) {
      if (method.is_full() || (method.scorer.empty() && keep != 1)) continue;
      const auto known = cache.metadata_store()->quality_for(context.run, method, keep);
      spread += known ? known->spread : kNothingKnown;
      ++configurations;
    }
  }
  const auto now = static_cast<double>(questions_of_profile(context));
  const auto then = static_cast<double>(context.asked.questions.size());
  return spread / static_cast<double>(configurations) *
         (1 - std::sqrt((now + kPriorQuestions) / (then + kPriorQuestions)));
}

// What is to be asked more in any case is not checked before: what was measured would be measured the same again.
Status QualityWatch::look(Context& context, const Stop& stop) {
  if (options_.profile_new && has_outgrown_profile(context)) return begin(context, true);
  DriftOptions options = options_.check;
  options.stop = stop;
  const bool answered = context.new_answers >= options_.questions_between;
  const AskedContext& asked = context.asked;
  const auto whole = std::span(asked.tokens).first(engine_.cache().whole_blocks(asked.tokens.size()));
  SHALE_ASSIGN(const DriftCheck check, answered ? check_answers(engine_, whole, context.answers, options)
                                                : check_drift(engine_, asked, options));
  context.new_questions = context.new_answers = 0;
  ++stats_.checks;
  stats_.answers += check.answers;
  stats_.check_seconds += check.seconds;
  if (!check.drifted) return {};
  ++stats_.drifted;
  return begin(context, false);
}

// On what is new alone, where the rest was measured here, did not drift, and is still what is known and kept. A profile
// that fails halfway leaves methods with more questions than others, so that the next begins anew.
Status QualityWatch::begin(Context& context, bool holds) {
  ProfileOptions options{.methods = {}, .full = false, .label = context.label, .record_later = true};
  options.answer_tokens = options_.check.answer_tokens;
  AskedContext asked = context.asked;
  context.tried_on = static_cast<std::uint32_t>(asked.questions.size());
  measuring_ = asked.questions;
  const auto measured = std::exchange(context.measured, {});
  const auto known = [&](const auto& each) { return std::ranges::find(measured, each) != measured.end(); };
  options.adds = holds && !measured.empty() && questions_of_profile(context) == measured.size() &&
                 std::ranges::count_if(asked.questions, known) == std::ssize(measured);
  if (options.adds) std::erase_if(asked.questions, known);
  const std::size_t questions = asked.questions.size();
  SHALE_ASSIGN(profiling_, ContextProfiling::begin(engine_, std::move(asked), questions, std::move(options)));
  context.new_questions = context.new_answers = 0;
  context.answers.clear();  // something else is expected from now on
  return {};
}

Status QualityWatch::go_on(const Stop& stop) {
  const OwnTime time(stop);
  const auto more = profiling_->step(stop);
  stats_.profile_seconds += time.seconds();
  if (!more) return std::unexpected(more.error());
  if (!*more) {
    ++stats_.profiled;
    const auto known = std::ranges::find(contexts_, profiling_->profile().run, &Context::run);
    if (known != contexts_.end()) known->measured = std::move(measuring_);
    engine_.cache().place_again(profiling_->profile().run);
    profiling_.reset();
  }
  return {};
}

}  // namespace shale
