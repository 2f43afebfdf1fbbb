#include <algorithm>
#include <cassert>

#include "codec/ranking.h"
#include "codec/tier_cut.h"
#include "codec/views/view_layer.h"
#include "codec/views/view_pages.h"

namespace shale {

std::vector<std::uint32_t> ranked_layers(std::uint32_t layers, std::span<const std::uint32_t> windows) {
  std::vector<std::uint32_t> ranked;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    if (windows.empty() || windows[layer] == 0) ranked.push_back(layer);
  }
  return ranked;
}

struct RunRanker::State {
  ViewPages pages;
  std::string name;
  std::unique_ptr<Scorer> scorer;
  std::unique_ptr<Budget> budget;  // null where all heads keep as many tokens
  std::uint32_t first_position;
  std::uint32_t scorer_window;
  const AttentionStatistics* statistics;
  ModelTraits model;
  std::vector<std::uint32_t> layers;  // that are ranked
  std::vector<float> scores;          // [layers that are ranked][kv_heads][tokens], under a budget
  std::vector<std::uint8_t> tier_of;  // likewise
  std::uint32_t layers_scored = 0, tiers_cut = 0;

  const PageShape& shape() const { return pages.shape(); }
  std::uint32_t tokens() const { return pages.tokens(); }
  std::size_t layer_size() const { return std::size_t{shape().kv_heads} * tokens(); }
  void score(std::uint32_t index);
};

void RunRanker::State::score(std::uint32_t index) {
  const ViewLayer layer(pages.heads(layers[index]), shape(), tokens(), layers[index], first_position, model,
                        *statistics);
  if (budget) return scorer->score(layer.kv(), std::span(scores).subspan(index * layer_size(), layer_size()));
  std::vector<float> of_layer(layer_size());
  scorer->score(layer.kv(), of_layer);
  for (std::size_t first = 0; first < of_layer.size(); first += tokens()) {
    cut_head(std::span(of_layer).subspan(first, tokens()),
             std::span(tier_of).subspan(index * layer_size() + first, tokens()));
  }
}

RunRanker::RunRanker(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunRanker::~RunRanker() = default;
RunRanker::RunRanker(RunRanker&&) noexcept = default;
RunRanker& RunRanker::operator=(RunRanker&&) noexcept = default;

Result<RunRanker> RunRanker::start(KvView run, std::string_view ranking, std::uint32_t first_position,
                                   const ScorerOptions& options, const AttentionStatistics& statistics,
                                   const ModelTraits& model) {
  SHALE_TRY(run.check());
  const KvGeometry& geometry = run.geometry;
  if (geometry.opaque() || geometry.head_dim % 8 != 0) {
    return fail(ErrorCode::kUnsupported,
                "{} blocks with a head dimension of {} cannot be ranked; it must be a multiple of 8",
                name_of(geometry.element), geometry.head_dim);
  }
  if (!model.windows.empty() && model.windows.size() != geometry.layers) {
    return fail(ErrorCode::kInvalidArgument, "{} layers with {} windows: there must be one each, or none",
                geometry.layers, model.windows.size());
  }
  SHALE_ASSIGN(const Method method, Method::parse(ranking));
  if (method.ranking() != ranking || method.scorer.empty()) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not a ranking: scorer or budget:scorer, such as snapkv", ranking);
  }
  const PageShape shape = {.layers = geometry.layers, .kv_heads = geometry.kv_heads, .head_dim = geometry.head_dim};
  SHALE_ASSIGN(std::unique_ptr<Scorer> scorer,
               ready_scorer(method.scorer, options, shape, run.tokens, statistics, model));
  std::unique_ptr<Budget> budget;
  if (!method.budget.empty()) {
    SHALE_ASSIGN(budget, make_budget(method.budget));
  }
  auto state = std::unique_ptr<State>(new State{.pages = ViewPages(std::move(run)),
                                                .name = std::string(ranking),
                                                .scorer = std::move(scorer),
                                                .budget = std::move(budget),
                                                .first_position = first_position,
                                                .scorer_window = options.window,
                                                .statistics = &statistics,
                                                .model = model,
                                                .layers = ranked_layers(geometry.layers, model.windows),
                                                .scores = {},
                                                .tier_of = {}});
  const std::size_t size = state->layers.size() * state->layer_size();
  state->tier_of.assign(size, kImportanceTiers - 1);
  if (state->budget) state->scores.resize(size);
  return RunRanker(std::move(state));
}

bool RunRanker::step(Executor& executor) {
  State& s = *state_;
  const auto layers = static_cast<std::uint32_t>(s.layers.size());
  if (s.layers_scored < layers) {
    const std::size_t count = std::min<std::size_t>(layers - s.layers_scored, executor.threads());
    executor.parallel_for(count, [&](std::size_t i) { s.score(s.layers_scored + static_cast<std::uint32_t>(i)); });
    s.layers_scored += static_cast<std::uint32_t>(count);
  } else if (s.budget && layers > 0 && s.tiers_cut + 1 < kImportanceTiers) {
    const ModelScores scores{layers, s.shape().kv_heads, s.tokens(), s.scores};
    cut_tier(*s.budget, scores, s.scorer_window, kKeepGrid, s.tiers_cut++, s.tier_of);
  }
  return s.layers_scored < layers || (s.budget && layers > 0 && s.tiers_cut + 1 < kImportanceTiers);
}

Ranking RunRanker::finish() {
  State& s = *state_;
  return {std::move(s.name), tier_map(s.shape(), s.tokens(), s.layers, s.tier_of)};
}

}  // namespace shale
