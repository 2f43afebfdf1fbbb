#include "profile/sweep.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "codec/compressed_copy.h"
#include "profile/context_scores.h"
#include "profile/prompt.h"
#include "profile/teacher.h"
#include "scoring/budget.h"

namespace shale {
namespace {

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
        batch_(engine.model(), references) {
    context_.truncate(tokens);
  }

  struct Measured {
    std::vector<Divergence> forced;                   // one per question
    std::vector<std::optional<std::string>> answers;  // one per question
    std::uint64_t bytes = 0;
  };
  // One per configuration. `done` is called after each.
  Result<std::vector<Measured>> run(const std::function<void()>& done);

 private:
  Status measure(const SweepConfiguration& configuration, Measured& measured);
  Result<std::vector<std::vector<std::uint32_t>>> kept_of(const SweepConfiguration& configuration);
  Result<std::span<const float>> scores_of(const std::string& scorer);
  Result<CompressedCopy> copy(std::span<const std::vector<std::uint32_t>> kept, const Quantizer* quantizer);
  Status generate(const Sequence& compressed, Measured& measured);

  Engine& engine_;
  const SweepOptions& options_;
  const ExactContext& exact_;
  Sequence context_;
  std::span<const Reference> references_;
  std::span<const std::vector<Token>> questions_;
  ForcedBatch batch_;
  std::string scored_;         // the scorer whose scores these are
  std::vector<float> scores_;  // [layers][kv_heads][tokens of the context]
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

// The positions that every head keeps.
Result<std::vector<std::vector<std::uint32_t>>> Sweeper::kept_of(const SweepConfiguration& configuration) {
  const PageShape shape = engine_.model().page_shape();
  const std::uint32_t tokens = context_.length();
  std::vector<std::vector<std::uint32_t>> kept(shape.pages_per_slab());
  Kept marks(kept.size() * tokens, 1);
  if (const Method& method = configuration.method; !method.scorer.empty()) {
    SHALE_ASSIGN(const auto scores, scores_of(method.scorer));
    SHALE_ASSIGN(const auto budget, make_budget(method.budget.empty() ? "uniform" : method.budget));
    marks = budget->select({shape.layers, shape.kv_heads, tokens, scores}, configuration.keep, options_.window);
  }
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i]) kept[i / tokens].push_back(static_cast<std::uint32_t>(i % tokens));
  }
  return kept;
}

// Where the pool has no room beside the questions that wait to be asked, they are asked first.
Result<CompressedCopy> Sweeper::copy(std::span<const std::vector<std::uint32_t>> kept, const Quantizer* quantizer) {
  Cache& cache = engine_.cache();
  const PageShape& shape = cache.pool().shape();
  const std::uint32_t wanted = shape.pages_for(context_.length()) + batch_.slabs_needed();
  if (!cache.make_room(wanted) && !batch_.empty()) {
    SHALE_TRY(batch_.run());
    static_cast<void>(cache.make_room(wanted));
  }
  return compressed_copy(cache.pool(), context_, kept, quantizer, engine_.model().executor());
}

Status Sweeper::generate(const Sequence& compressed, Measured& measured) {
  std::vector<Asked> asked;
  for (const auto& question : questions_) asked.push_back({&compressed, question});
  SHALE_ASSIGN(const auto answers, greedy_answers(engine_.model(), engine_.tokenizer(), asked, options_.answer_tokens));
  for (std::size_t i = 0; i < answers.size(); ++i) measured.answers[i] = engine_.tokenizer().text(answers[i]);
  return {};
}

Status Sweeper::measure(const SweepConfiguration& configuration, Measured& measured) {
  std::unique_ptr<Quantizer> quantizer;
  if (configuration.method.quantizer != "none") {
    SHALE_ASSIGN(quantizer, make_quantizer(configuration.method.quantizer));
  }
  SHALE_ASSIGN(const auto kept, kept_of(configuration));
  SHALE_ASSIGN(const CompressedCopy compressed, copy(kept, quantizer.get()));
  measured = {std::vector<Divergence>(references_.size()), std::vector<std::optional<std::string>>(references_.size()),
              compressed.bytes};
  batch_.add(compressed.sequence, measured.forced);
  if (configuration.generate) SHALE_TRY(generate(compressed.sequence, measured));
  if (batch_.full()) SHALE_TRY(batch_.run());
  return {};
}

Result<std::vector<Sweeper::Measured>> Sweeper::run(const std::function<void()>& done) {
  std::vector<Measured> measured(options_.configurations.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (options_.stop && options_.stop()) return fail(ErrorCode::kCancelled, "the sweep was stopped");
    const SweepConfiguration& configuration = options_.configurations[i];
    if (auto status = measure(configuration, measured[i]); !status) {
      return fail_in(configuration.method.text(), std::move(status).error());
    }
    done();
  }
  SHALE_TRY(batch_.run());
  return measured;
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
  std::vector<Token> tokens;
  std::vector<std::vector<Token>> asked;
  std::size_t longest = 0;
  for (const std::string& question : questions) {
    SHALE_ASSIGN(PromptParts parts, make_prompt(engine.tokenizer(), context, question));
    tokens = std::move(parts.context);
    longest = std::max(longest, parts.question.size());
    asked.push_back(std::move(parts.question));
  }
  const std::size_t beside = longest + options.answer_tokens + 1, room = engine.model().info().context_max;
  if (asked.empty() || beside >= room) {
    return fail(ErrorCode::kInvalidArgument, "questions of up to {} tokens do not fit the model's context of {}",
                longest, room);
  }
  std::size_t most = room - beside;
  if (options.context_tokens_max > 0) most = std::min<std::size_t>(most, options.context_tokens_max);
  ContextSweep sweep;
  if (tokens.size() > most) {
    sweep.tokens_cut = static_cast<std::uint32_t>(tokens.size() - most);
    tokens = without_middle(tokens, most);
  }
  sweep.tokens = static_cast<std::uint32_t>(tokens.size());
  sweep.full_bytes = sweep.tokens * engine.model().page_shape().token_bytes();

  std::vector<Method> methods;
  for (const SweepConfiguration& configuration : options.configurations) methods.push_back(configuration.method);
  SHALE_ASSIGN(ScorerNeeds needs, needs_of(engine.cache(), methods));
  if (needs.last_queries > 0) needs.last_queries = std::max(needs.last_queries, options.window);
  SHALE_ASSIGN(const ExactContext exact,
               exact_context(engine, tokens, options.question_seen ? ScorerNeeds{} : needs, "quality"));
  SHALE_ASSIGN(const auto references,
               answer_questions(engine.model(), engine.tokenizer(), exact.sequence, asked, options.answer_tokens));
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
      std::vector<Token> both = tokens;
      both.insert(both.end(), asked[group].begin(), asked[group].end());
      SHALE_ASSIGN(seen, exact_context(engine, both, needs, "quality"));
    }
    Sweeper sweeper(engine, options, seen ? *seen : exact, sweep.tokens, std::span(references).subspan(first, count),
                    std::span(asked).subspan(first, count));
    SHALE_ASSIGN(auto measured, sweeper.run(on_done));
    for (std::size_t c = 0; c < configurations; ++c) {
      for (std::size_t q = 0; q < count; ++q) {
        sweep.rows.push_back({options.configurations[c], first + q, measured[c].forced[q], measured[c].bytes,
                              std::move(measured[c].answers[q])});
      }
    }
  }
  return sweep;
}

}  // namespace shale
