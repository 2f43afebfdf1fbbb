#include "microbench/scoring_cost.h"

#include <algorithm>
#include <random>

#include "codec/ranking.h"
#include "core/clock.h"
#include "core/quantile.h"
#include "engine/chunk.h"
#include "microbench/memory_bandwidth.h"
#include "model/capture.h"

namespace shale::bench {
namespace {

constexpr std::uint32_t kStepTokens = 512;

// Times what happens between a layer's queries and its feed-forward network.
class AttentionTime final : public StepHooks {
 public:
  Status before_attention(std::uint32_t) override {
    start_s_ = clock_.now_s();
    return {};
  }
  void after_layer(std::uint32_t) override { seconds += clock_.now_s() - start_s_; }

  double seconds = 0;

 private:
  RealClock clock_;
  double start_s_ = 0;
};

struct Times {
  std::vector<double> prefill, attention;
};

class Measurement {
 public:
  Measurement(Model& model, const Tokenizer& tokenizer, PagePool& pool, std::uint32_t tokens)
      : model_(model),
        tokenizer_(tokenizer),
        pool_(pool),
        sequence_(pool),
        layers_(ranked_layers(model.info().layers, model.info().windows)) {
    std::mt19937 random(1);
    tokens_.resize(tokens);
    for (Token& token : tokens_) token = static_cast<Token>(random() % model.info().vocabulary);
  }

  // Computes the context anew, watched for `needs`.
  Status prefill(const ScorerNeeds& needs, Times& times) {
    sequence_.clear();
    Capture capture(model_.info(), 0, static_cast<std::uint32_t>(tokens_.size()), needs);
    AttentionTime hooks;
    const RealClock clock;
    const double start_s = clock.now_s();
    SHALE_TRY(compute(sequence_, tokens_, capture, &hooks));
    seen_.merge(capture.take());
    times.prefill.push_back(clock.now_s() - start_s);
    times.attention.push_back(hooks.seconds);
    return {};
  }

  Status repeat(std::vector<double>& seconds) {
    const RealClock clock;
    const double start_s = clock.now_s();
    SHALE_ASSIGN(Repetition repetition, Repetition::begin(model_, tokenizer_, sequence_, tokens_));
    while (repetition.next_turn()) {
      SHALE_TRY(compute(repetition.sequence(), repetition.turn(), repetition.capture(), nullptr));
    }
    seconds.push_back(clock.now_s() - start_s);
    seen_.merge(repetition.take());
    return {};
  }

  std::uint32_t layers() const { return static_cast<std::uint32_t>(layers_.size()); }

  double score(const Scorer& scorer) {
    const ModelInfo& info = model_.info();
    std::vector<std::vector<float>> scores(layers_.size(), std::vector<float>(info.kv_heads * tokens_.size()));
    return seconds_of([&] {
      model_.executor().parallel_for(layers_.size(), [&](std::size_t i) {
        const std::uint32_t layer = layers_[i];
        std::vector<LayerKv<Half>::Page> pages;
        for (std::uint32_t head = 0; head < info.kv_heads; ++head) {
          for (const PageSlot slot : sequence_.table(layer, head).pages) {
            const PageView page = pool_.host_view().page(slot.page);
            pages.push_back({page.keys, page.values});
          }
        }
        LayerKv<Half> kv;
        kv.tokens = static_cast<std::uint32_t>(tokens_.size());
        kv.kv_heads = info.kv_heads;
        kv.head_dim = info.head_dim;
        kv.block_size = pool_.shape().block_size;
        kv.layer = layer;
        kv.pages = pages;
        kv.rope = info.ropes[layer];
        seen_.hand_over(layer, kv);
        scorer.score(kv, scores[i]);
      });
    });
  }

 private:
  Status compute(Sequence& sequence, std::span<const Token> tokens, Capture& capture, StepHooks* hooks) {
    while (!tokens.empty()) {
      const auto chunk = tokens.first(next_chunk(static_cast<std::uint32_t>(tokens.size()), kStepTokens));
      SHALE_TRY(sequence.append(static_cast<std::uint32_t>(chunk.size())));
      const StepSequence step{.sequence = &sequence, .tokens = chunk, .logits_none = true, .capture = &capture};
      SHALE_TRY(model_.step({&step, 1}, hooks));
      tokens = tokens.subspan(chunk.size());
    }
    return {};
  }

  Model& model_;
  const Tokenizer& tokenizer_;
  PagePool& pool_;
  Sequence sequence_;
  std::vector<std::uint32_t> layers_;  // that are ranked
  std::vector<Token> tokens_;
  AttentionStatistics seen_;
};

struct Observed {
  std::string_view name;
  ScorerNeeds needs;
};
constexpr Observed kObserved[] = {{"last 64 queries", {.last_queries = 64}},
                                  {"last 400 queries", {.last_queries = 400}},
                                  {"attention sums", {.attention_sums = true}},
                                  {"query moments", {.query_moments = true}}};
constexpr std::string_view kRepetition = "repetition";

// What gathering these needs costs: that of its parts, which share nothing; the shorter window that suffices.
double observing_seconds(const ScorerNeeds& needs, const std::vector<ObservingCost>& costs) {
  double seconds = needs.repeat_attention ? costs.back().seconds : 0;
  bool window = needs.last_queries > 0;
  for (std::size_t i = 0; i < std::size(kObserved); ++i) {
    const ScorerNeeds& part = kObserved[i].needs;
    const bool windowed = window && part.last_queries >= needs.last_queries;
    if (windowed) window = false;
    if (windowed || (part.attention_sums && needs.attention_sums) || (part.query_moments && needs.query_moments)) {
      seconds += costs[i].seconds;
    }
  }
  return seconds;
}

}  // namespace

Result<ScoringCosts> measure_scoring(Model& model, const Tokenizer& tokenizer, std::uint32_t tokens,
                                     std::uint32_t rounds) {
  const PageShape shape = model.page_shape();
  const std::uint32_t blocks = shape.pages_for(tokens) + shape.pages_for(repetition_tokens_max(tokens)) + 2;
  SHALE_ASSIGN(const auto pool, PagePool::create(shape, blocks * shape.block_bytes()));
  Measurement measurement(model, tokenizer, *pool, tokens);
  Times plain;
  std::vector<Times> watched(std::size(kObserved));
  std::vector<double> repeated;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    SHALE_TRY(measurement.prefill({}, plain));
    for (std::size_t i = 0; i < watched.size(); ++i) {
      SHALE_TRY(measurement.prefill(kObserved[i].needs, watched[i]));
    }
    SHALE_TRY(measurement.repeat(repeated));
  }

  ScoringCosts costs{.layers = measurement.layers(),
                     .prefill_seconds = quantile(plain.prefill, 0.5),
                     .attention_seconds = quantile(plain.attention, 0.5),
                     .observing = {},
                     .scoring = {}};
  const auto add = [&](std::string_view name, double seconds, double attention_seconds) {
    costs.observing.push_back(
        {std::string(name), seconds, seconds / costs.prefill_seconds, attention_seconds / costs.attention_seconds});
  };
  for (std::size_t i = 0; i < watched.size(); ++i) {
    add(kObserved[i].name, quantile(watched[i].prefill, 0.5) - costs.prefill_seconds,
        quantile(watched[i].attention, 0.5) - costs.attention_seconds);
  }
  add(kRepetition, quantile(repeated, 0.5), quantile(repeated, 0.5));
  for (const std::string_view name : scorer_names()) {
    SHALE_ASSIGN(const auto scorer, make_scorer(name));
    if (scorer->needs().calibration) continue;
    std::vector<double> seconds;
    for (std::uint32_t round = 0; round < rounds; ++round) seconds.push_back(measurement.score(*scorer));
    const double observing = observing_seconds(scorer->needs(), costs.observing);
    costs.scoring.push_back({std::string(name), observing, quantile(seconds, 0.5),
                             (observing + quantile(seconds, 0.5)) / costs.prefill_seconds});
  }
  return costs;
}

}  // namespace shale::bench
