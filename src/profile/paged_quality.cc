#include "profile/paged_quality.h"

#include <algorithm>
#include <utility>

#include "engine/chunk.h"
#include "profile/feed.h"

namespace shale {
namespace {

// One sequence that generates: the full cache's, or one inside a budget.
struct Lane {
  Sequence sequence;
  std::unique_ptr<KvBudget> budget;
  std::vector<float> logits;  // of its next token
};

class Lanes {
 public:
  Lanes(Model& model, PagePool& pool, std::span<const Token> prompt, const PagedQualityOptions& options)
      : model_(model),
        pool_(pool),
        prompt_(prompt),
        options_(options),
        full_{Sequence(pool), nullptr, {}},
        reference_{Sequence(options.reference ? *options.reference : pool), nullptr, {}} {}

  Status prefill() {
    ScorerNeeds needs;
    for (const KvBudgetOptions& each : options_.budgets) {
      SHALE_ASSIGN(const auto budget, make(each));
      if (!budget || !budget->capture()) continue;
      needs.last_queries = std::max(needs.last_queries, budget->capture()->window());
      needs.attention_sums = needs.attention_sums || budget->capture()->wants_attention();
    }
    LiveCapture seen(model_.info(), needs.last_queries, needs.attention_sums);
    SHALE_TRY(prefill(full_, &seen));
    seen_.emplace(std::move(seen));
    if (options_.reference) return prefill(reference_, nullptr);
    reference_ = {full_.sequence.fork(), nullptr, full_.logits};
    return {};
  }

  // A lane for the full cache and one for every budget, as they stand after the prompt.
  Result<std::vector<Lane>> begin() {
    std::vector<Lane> lanes;
    lanes.push_back({reference_.sequence.fork(), nullptr, reference_.logits});
    for (const KvBudgetOptions& each : options_.budgets) {
      SHALE_ASSIGN(auto budget, make(each));
      Lane lane{Sequence(pool_), std::move(budget), {}};
      if (!lane.budget) {
        lane.sequence = full_.sequence.fork();
        lane.logits = full_.logits;
      } else if (each.prefill == BudgetPrefill::kWhole) {
        lane.sequence = full_.sequence.fork();
        lane.logits = full_.logits;
        lane.budget->adopt(*seen_);
        lane.budget->chunk_done(lane.sequence, true, model_.executor());
      } else {
        SHALE_TRY(prefill(lane, lane.budget->capture()));
      }
      lanes.push_back(std::move(lane));
    }
    return lanes;
  }

  // Feeds one token to each lane that goes on, in a batch for each pool.
  Status step(std::vector<Lane>& lanes, std::span<const Token> tokens, std::span<const std::uint8_t> going) {
    const std::size_t apart = options_.reference ? 1 : 0;
    SHALE_TRY(step(std::span(lanes).first(apart), tokens.first(apart), going.first(apart)));
    return step(std::span(lanes).subspan(apart), tokens.subspan(apart), going.subspan(apart));
  }

 private:
  Status step(std::span<Lane> lanes, std::span<const Token> tokens, std::span<const std::uint8_t> going) {
    const std::size_t vocabulary = model_.info().vocabulary;
    std::vector<StepSequence> batch;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (!going[i]) continue;
      SHALE_TRY(lanes[i].sequence.append(1));
      batch.push_back({.sequence = &lanes[i].sequence,
                       .tokens = tokens.subspan(i, 1),
                       .live = lanes[i].budget ? lanes[i].budget->capture() : nullptr});
    }
    if (batch.empty()) return {};
    SHALE_ASSIGN(std::span<const float> logits, model_.step(batch));
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (!going[i]) continue;
      lanes[i].logits.assign(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocabulary));
      logits = logits.subspan(vocabulary);
      if (lanes[i].budget && lanes[i].budget->due(lanes[i].sequence)) {
        lanes[i].budget->work(lanes[i].sequence, model_.executor());
      }
    }
    return {};
  }

  // Null for a budget of 0 tokens.
  Result<std::unique_ptr<KvBudget>> make(const KvBudgetOptions& each) const {
    if (each.tokens == 0) return nullptr;
    return KvBudget::create(each, model_.info(), pool_.shape().block_size, static_cast<std::uint32_t>(prompt_.size()),
                            options_.scorers, options_.calibration);
  }

  Status prefill(Lane& lane, LiveCapture* capture) {
    for (std::span<const Token> rest = prompt_; !rest.empty();) {
      const auto chunk = rest.first(next_chunk(static_cast<std::uint32_t>(rest.size()), kStepTokens));
      rest = rest.subspan(chunk.size());
      SHALE_TRY(lane.sequence.append(static_cast<std::uint32_t>(chunk.size())));
      const StepSequence step{
          .sequence = &lane.sequence, .tokens = chunk, .logits_none = !rest.empty(), .live = capture};
      SHALE_ASSIGN(const auto logits, model_.step({&step, 1}));
      lane.logits.assign(logits.begin(), logits.end());
      if (lane.budget) lane.budget->chunk_done(lane.sequence, rest.empty(), model_.executor());
    }
    return {};
  }

  Model& model_;
  PagePool& pool_;
  std::span<const Token> prompt_;
  const PagedQualityOptions& options_;
  Lane full_;       // in the pool of the budgets
  Lane reference_;  // what they are compared with: the same, or in a pool of its own
  std::optional<LiveCapture> seen_;
};

// Sums of what single tokens diverge by.
struct Sum {
  double agreement = 0, kl = 0, count = 0;
  void add(const Divergence& one) {
    agreement += one.agreement;
    kl += one.kl;
    ++count;
  }
  Divergence mean() const { return {agreement / count, kl / count}; }
};

}  // namespace

Result<PagedQualities> measure_paged_quality(Model& model, const Tokenizer& tokenizer, PagePool& pool,
                                             std::span<const Token> prompt, const PagedQualityOptions& options) {
  if (prompt.empty()) return fail(ErrorCode::kInvalidArgument, "the prompt is empty: nothing can be asked of it");
  const std::size_t vocabulary = model.info().vocabulary;
  const auto ends = [&](Token token) { return !options.ignore_end && tokenizer.ends_turn(token); };
  Lanes source(model, pool, prompt, options);
  SHALE_TRY(source.prefill());
  PagedQualities result;
  result.budgets.resize(options.budgets.size());
  {
    SHALE_ASSIGN(std::vector<Lane> lanes, source.begin());
    const std::vector<std::uint8_t> all(lanes.size(), 1);
    std::vector<Sum> whole(options.budgets.size()), span(options.budgets.size());
    while (result.answer.size() < options.answer_tokens) {
      const Token token = arg_max(lanes[0].logits);
      result.answer.push_back(token);
      const bool last = ends(token) || result.answer.size() == options.answer_tokens;
      for (std::size_t i = 0; i < options.budgets.size(); ++i) {
        const Divergence one = divergence(lanes[0].logits, lanes[i + 1].logits, {&token, 1}, vocabulary);
        whole[i].add(one);
        span[i].add(one);
        if (last || result.answer.size() % options.span_tokens == 0) {
          result.budgets[i].along.push_back(std::exchange(span[i], {}).mean());
        }
      }
      if (last) break;
      SHALE_TRY(source.step(lanes, std::vector<Token>(lanes.size(), token), all));
    }
    for (std::size_t i = 0; i < options.budgets.size(); ++i) {
      result.budgets[i].forced = whole[i].mean();
      if (lanes[i + 1].budget) result.budgets[i].stats = lanes[i + 1].budget->stats();
    }
  }
  if (!options.own_answers) return result;

  SHALE_ASSIGN(std::vector<Lane> lanes, source.begin());
  std::vector<std::uint8_t> going(lanes.size(), 1);
  going[0] = 0;  // its answer is known
  std::vector<Token> tokens(lanes.size());
  while (std::ranges::any_of(going, [](std::uint8_t each) { return each != 0; })) {
    for (std::size_t i = 1; i < lanes.size(); ++i) {
      if (!going[i]) continue;
      std::vector<Token>& answer = result.budgets[i - 1].answer;
      answer.push_back(tokens[i] = arg_max(lanes[i].logits));
      going[i] = !ends(tokens[i]) && answer.size() < options.answer_tokens;
    }
    if (std::ranges::any_of(going, [](std::uint8_t each) { return each != 0; })) {
      SHALE_TRY(source.step(lanes, tokens, going));
    }
  }
  return result;
}

}  // namespace shale
