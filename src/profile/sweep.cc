#include "profile/sweep.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "codec/ranking.h"
#include "codec/tier_cut.h"
#include "profile/context_scores.h"
#include "profile/context_signals.h"
#include "profile/prompt.h"
#include "profile/questions.h"
#include "profile/teacher.h"
#include "scoring/budgets/budget.h"

namespace shale {
namespace {

// Tiers of which one ends at a keep, and how many hold it.
struct CutAt {
  TierEnds ends = kKeepGrid;
  std::uint32_t tiers = 0;
};
CutAt cut_at(double keep) {
  CutAt cut{.tiers = keep < 1 ? std::min(tiers_for(keep), kImportanceTiers - 1) : kImportanceTiers};
  cut.ends[cut.tiers - 1] = keep;
  return cut;
}

// Questions that share what they stand on: a context, ranked with or without one of them behind it.
class Sweeper {
 public:
  // `exact` is longer than the context where a question was seen.
  Sweeper(Engine& engine, const SweepOptions& options, const ExactContext& exact, std::uint32_t tokens,
          std::span<const Reference> references, std::span<const std::vector<Token>> questions)
      : engine_(engine),
        options_(options),
        exact_(exact),
        context_(exact.sequence.fork()),
        references_(references),
        questions_(questions),
        batch_(engine.model(), references, options.stop) {
    context_.truncate(tokens);
  }

  struct Measured {
    std::vector<Divergence> forced;                   // one per question
    std::vector<std::optional<std::string>> answers;  // one per question
    std::uint64_t bytes = 0;
  };
  // One per configuration. `done` is called after each.
  Result<std::vector<Measured>> run(const std::function<void()>& done);
  // One per configuration; adds to the times of `sweep`.
  Result<std::vector<Predicted>> predict(std::span<const std::vector<Token>> probe, ContextSweep& sweep);

 private:
  Status measure(const SweepConfiguration& configuration, Measured& measured);
  Result<std::vector<ContextSignals>> signals();
  Result<TierMap> tiers_of(const SweepConfiguration& configuration);
  Result<std::span<const float>> scores_of(const std::string& scorer);
  Status compress(const SweepConfiguration& configuration);
  Status expand(const CompressedRun& run, double keep, Sequence& into);
  Status generate(const Sequence& compressed, Measured& measured);

  Engine& engine_;
  const SweepOptions& options_;
  const ExactContext& exact_;
  Sequence context_;
  std::span<const Reference> references_;
  std::span<const std::vector<Token>> questions_;
  ForcedBatch batch_;
  std::string scored_;         // the scorer whose scores these are
  std::vector<float> scores_;  // [layers that are ranked][kv_heads][tokens of the context]
  // What was compressed last: that of all keeps of its method where its tiers end alike.
  std::optional<CompressedRun> run_;
  TierEnds ends_ = {};
};

// What stands behind the context is ranked with it, but neither kept nor counted.
Result<std::span<const float>> Sweeper::scores_of(const std::string& scorer) {
  if (scorer == scored_) return std::span<const float>(scores_);
  ScorerOptions scorer_options = engine_.cache().options().scorers;
  scorer_options.window = options_.window;
  SHALE_ASSIGN(scores_, score_context(engine_, exact_, scorer, scorer_options));
  const std::size_t tokens = context_.length(), ranked = exact_.sequence.length();
  const std::size_t heads = scores_.size() / ranked;
  for (std::size_t head = 0; ranked > tokens && head < heads; ++head) {
    std::copy_n(scores_.begin() + static_cast<std::ptrdiff_t>(head * ranked), tokens,
                scores_.begin() + static_cast<std::ptrdiff_t>(head * tokens));
  }
  scores_.resize(heads * tokens);
  scored_ = scorer;
  return std::span<const float>(scores_);
}

// As a store ranks: layers with a window keep every token. All tokens are in tier 0 where nothing is ranked.
Result<TierMap> Sweeper::tiers_of(const SweepConfiguration& configuration) {
  const PageShape& shape = engine_.cache().pool().shape();
  const std::uint32_t tokens = context_.length();
  const Method& method = configuration.method;
  if (method.scorer.empty()) return TierMap(shape.pages_per_block(), tokens);
  SHALE_ASSIGN(const auto scores, scores_of(method.scorer));
  SHALE_ASSIGN(const auto budget, make_budget(method.budget.empty() ? "uniform" : method.budget));
  const std::vector<std::uint32_t> layers = ranked_layers(shape.layers, engine_.cache().options().model.windows);
  return cut_tiers(*budget, {static_cast<std::uint32_t>(layers.size()), shape.kv_heads, tokens, scores},
                   options_.window, shape, layers, cut_at(configuration.keep).ends);
}

Result<std::vector<ContextSignals>> Sweeper::signals() {
  std::vector<SignalConfiguration> configurations;
  for (const SweepConfiguration& configuration : options_.configurations) {
    SignalConfiguration& one = configurations.emplace_back();
    SHALE_ASSIGN(one.tiers, tiers_of(configuration));
    for (std::uint32_t tier = 0; tier < cut_at(configuration.keep).tiers; ++tier) {
      const std::string_view name = configuration.method.quantizer_of(tier);
      SHALE_ASSIGN(auto quantizer, make_quantizer(name, engine_.cache().options().tables));
      one.quantizers.push_back(name == "none" ? nullptr : std::move(quantizer));
    }
  }
  return context_signals(exact_, context_.length(), configurations, engine_.model().info().attention_scale,
                         engine_.model().executor());
}

// The probe's questions are asked as the others are, by a sweeper of their own.
Result<std::vector<Predicted>> Sweeper::predict(std::span<const std::vector<Token>> probe, ContextSweep& sweep) {
  const RealClock clock;
  const double start_s = clock.now_s();
  SHALE_ASSIGN(const auto signs, signals());
  const double probing_s = clock.now_s();
  SHALE_ASSIGN(const auto references,
               answer_questions(engine_.model(), engine_.tokenizer(), context_, probe, kProbeTokens, options_.stop));
  SweepOptions forced = options_;
  for (SweepConfiguration& configuration : forced.configurations) configuration.generate = false;
  Sweeper prober(engine_, forced, exact_, context_.length(), references, probe);
  SHALE_ASSIGN(const auto probed, prober.run([] {}));
  sweep.signals_s += probing_s - start_s;
  sweep.probe_s += clock.now_s() - probing_s;
  std::vector<Predicted> all;
  for (std::size_t c = 0; c < signs.size(); ++c) {
    Predicted& one = all.emplace_back(signs[c].mass, signs[c].error, 0);
    for (const Divergence& answer : probed[c].forced) {
      one.probe += answer.agreement / static_cast<double>(probed[c].forced.size());
    }
  }
  return all;
}

Status Sweeper::compress(const SweepConfiguration& configuration) {
  const TierEnds ends = cut_at(configuration.keep).ends;
  if (run_ && run_->method == configuration.method && ends == ends_) return {};
  run_.reset();
  SHALE_ASSIGN(TierMap tiers, tiers_of(configuration));
  SHALE_TRY(check_stop(options_.stop));
  SHALE_ASSIGN(RunCompressor compressor, RunCompressor::start(engine_.cache().codec(), context_, 0, context_.length(),
                                                              configuration.method, std::move(tiers)));
  SHALE_TRY(step_through(compressor, engine_.model().executor(), options_.stop));
  run_ = compressor.finish();
  ends_ = ends;
  return {};
}

// Where the pool has no room beside the questions that wait to be asked, they are asked first.
Status Sweeper::expand(const CompressedRun& run, double keep, Sequence& into) {
  Cache& cache = engine_.cache();
  const std::uint32_t wanted = cache.pool().shape().pages_for(run.tokens) + batch_.blocks_needed();
  if (!cache.evict_until_free(wanted) && !batch_.empty()) {
    SHALE_TRY(batch_.run());
    static_cast<void>(cache.evict_until_free(wanted));
  }
  SHALE_ASSIGN(RunExpander expander, RunExpander::start(cache.codec(), run, keep, into));
  return step_through(expander, engine_.model().executor(), options_.stop);
}

Status Sweeper::generate(const Sequence& compressed, Measured& measured) {
  std::vector<Asked> asked;
  for (const auto& question : questions_) asked.push_back({&compressed, question});
  SHALE_ASSIGN(const auto answers,
               greedy_answers(engine_.model(), engine_.tokenizer(), asked, options_.answer_tokens, options_.stop));
  for (std::size_t i = 0; i < answers.size(); ++i) measured.answers[i] = engine_.tokenizer().text(answers[i]);
  return {};
}

Status Sweeper::measure(const SweepConfiguration& configuration, Measured& measured) {
  SHALE_TRY(compress(configuration));
  const double keep = kKeepGrid[cut_at(configuration.keep).tiers - 1];
  Sequence compressed(engine_.cache().pool());
  SHALE_TRY(expand(*run_, keep, compressed));
  measured = {std::vector<Divergence>(references_.size()), std::vector<std::optional<std::string>>(references_.size()),
              run_->bytes_for(keep)};
  batch_.add(compressed, measured.forced);
  if (configuration.generate) SHALE_TRY(generate(compressed, measured));
  if (batch_.full()) SHALE_TRY(batch_.run());
  return {};
}

Result<std::vector<Sweeper::Measured>> Sweeper::run(const std::function<void()>& done) {
  std::vector<Measured> measured(options_.configurations.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    SHALE_TRY(check_stop(options_.stop));
    const SweepConfiguration& configuration = options_.configurations[i];
    if (auto status = measure(configuration, measured[i]); !status) {
      return fail_in(configuration.method.text(), std::move(status).error());
    }
    done();
  }
  SHALE_TRY(batch_.run());
  return measured;
}

// Questions that the model wrote.
Result<std::vector<std::vector<Token>>> write_probe(Engine& engine, std::string_view context) {
  SHALE_ASSIGN(const WrittenQuestions written, write_questions(engine, context, kProbeQuestions));
  SHALE_ASSIGN(AskedContext asked, ask(engine.tokenizer(), context, written.questions));
  return std::move(asked.questions);
}

// The start and the end of a context that is too long.
std::vector<Token> without_middle(std::span<const Token> tokens, std::size_t kept) {
  std::vector<Token> cut(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(kept - kept / 2));
  cut.insert(cut.end(), tokens.end() - static_cast<std::ptrdiff_t>(kept / 2), tokens.end());
  return cut;
}

}  // namespace

Result<ContextSweep> sweep_context(Engine& engine, std::string_view context, std::span<const std::string> questions,
                                   const SweepOptions& options,
                                   const std::function<void(std::size_t, std::size_t)>& progress) {
  SHALE_ASSIGN(const AskedContext asked, ask(engine.tokenizer(), context, questions));
  return sweep_context(engine, asked, options, progress);
}

Result<ContextSweep> sweep_context(Engine& engine, const AskedContext& context, const SweepOptions& options,
                                   const std::function<void(std::size_t, std::size_t)>& progress) {
  AskedContext whole{.tokens = context.tokens, .questions = context.questions};
  const std::size_t questions = context.questions.size();
  std::size_t longest = 0;
  for (const auto& question : context.questions) longest = std::max(longest, question.size());
  const std::size_t beside = longest + options.answer_tokens + 1, room = engine.model().info().context_max;
  if (questions == 0 || beside >= room) {
    return fail(ErrorCode::kInvalidArgument, "questions of up to {} tokens do not fit the model's context of {}",
                longest, room);
  }
  std::size_t most = room - beside;
  if (options.context_tokens_max > 0) most = std::min<std::size_t>(most, options.context_tokens_max);
  ContextSweep sweep;
  if (whole.tokens.size() > most) {
    sweep.tokens_cut = static_cast<std::uint32_t>(whole.tokens.size() - most);
    whole.tokens = without_middle(whole.tokens, most);
  }

  std::vector<Method> methods;
  for (const SweepConfiguration& configuration : options.configurations) methods.push_back(configuration.method);
  SHALE_ASSIGN(ScorerNeeds needs, needs_of(engine.cache(), methods));
  if (needs.last_queries > 0) needs.last_queries = std::max(needs.last_queries, options.window);
  if (options.predict) needs.last_queries = std::max(needs.last_queries, kSignalQueries);
  const RealClock clock;
  if (options.predict) {
    const double start_s = clock.now_s();
    SHALE_ASSIGN(const auto written, write_probe(engine, context.text));
    whole.questions.insert(whole.questions.end(), written.begin(), written.end());
    sweep.probe_s = clock.now_s() - start_s;
  }
  sweep.tokens = static_cast<std::uint32_t>(whole.tokens.size());
  SHALE_TRY(keep_whole_blocks(whole, engine.cache().block_tokens()));
  const auto asked = std::span(whole.questions).first(questions), probe = std::span(whole.questions).subspan(questions);
  const auto tokens = static_cast<std::uint32_t>(whole.tokens.size());
  sweep.full_bytes = tokens * engine.model().page_shape().token_bytes();
  SHALE_ASSIGN(const ExactContext exact,
               exact_context(engine, whole.tokens, options.question_seen ? ScorerNeeds{} : needs, {options.label},
                             options.stop));
  const double answering_s = clock.now_s();
  SHALE_ASSIGN(const auto references, answer_questions(engine.model(), engine.tokenizer(), exact.sequence, asked,
                                                       options.answer_tokens, options.stop));
  sweep.measured_s = clock.now_s() - answering_s;
  for (const Reference& reference : references) sweep.answers.push_back(engine.tokenizer().text(reference.answer));

  const std::size_t configurations = options.configurations.size();
  const std::size_t groups = options.question_seen ? asked.size() : 1;
  std::size_t done = 0;
  const auto on_done = [&] {
    if (progress) progress(++done, groups * configurations);
  };
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t first = group, count = options.question_seen ? 1 : asked.size();
    std::optional<ExactContext> seen;
    if (options.question_seen) {
      std::vector<Token> both = whole.tokens;
      both.insert(both.end(), asked[group].begin(), asked[group].end());
      SHALE_ASSIGN(seen, exact_context(engine, both, needs, {options.label}, options.stop));
    }
    Sweeper sweeper(engine, options, seen ? *seen : exact, tokens, std::span(references).subspan(first, count),
                    asked.subspan(first, count));
    std::vector<Predicted> predicted;
    if (options.predict) {
      SHALE_ASSIGN(predicted, sweeper.predict(probe, sweep));
    }
    const double asking_s = clock.now_s();
    SHALE_ASSIGN(auto measured, sweeper.run(on_done));
    sweep.measured_s += clock.now_s() - asking_s;
    for (std::size_t c = 0; c < configurations; ++c) {
      for (std::size_t q = 0; q < count; ++q) {
        SweepRow& row = sweep.rows.emplace_back(options.configurations[c], first + q, measured[c].forced[q],
                                                measured[c].bytes, std::move(measured[c].answers[q]));
        if (options.predict) row.predicted = predicted[c];
      }
    }
  }
  return sweep;
}

}  // namespace shale
