#include <algorithm>
#include <cassert>

#include "codec/entry_layer.h"
#include "codec/ranking.h"
#include "codec/tier_cut.h"
#include "codec/view_copy.h"

namespace shale {

struct RunRanker::State {
  KvView view;
  TokenCopies<const std::byte> copies;
  PageShape shape;  // of the pages that scorers read
  bool in_place;    // whether the view's own blocks are such pages
  std::string name;
  std::unique_ptr<Scorer> scorer;
  std::unique_ptr<Budget> budget;  // null where all heads keep as many tokens
  std::uint32_t first_position;
  std::uint32_t scorer_window;
  const Observations* observations;
  ModelTraits model;
  std::vector<std::uint32_t> layers;  // that are ranked
  std::vector<float> scores;          // [layers that are ranked][kv_heads][tokens], under a budget
  std::vector<std::uint8_t> tier_of;  // likewise
  std::uint32_t layers_scored = 0, tiers_cut = 0;

  std::size_t layer_size() const { return std::size_t{shape.kv_heads} * view.tokens; }
  HeadPages pages(std::uint32_t layer, std::uint32_t head) const;
  void score(std::uint32_t index);
};

namespace {

// Whether a view's blocks are head pages of halves.
bool holds_pages(const KvView& view) {
  const KvGeometry& geometry = view.geometry;
  constexpr std::int64_t kHalf = sizeof(Half);
  const std::int64_t row = kHalf * geometry.head_dim, column = kHalf * geometry.block_tokens;
  const std::uint32_t n = geometry.block_tokens;
  return geometry.element == KvElement::kF16 && (n == 8 || n == 16 || n == 32 || n == 64) &&
         view.keys.token_stride == kHalf && view.keys.channel_stride == column && view.values.token_stride == row &&
         view.values.channel_stride == kHalf;
}

}  // namespace

HeadPages RunRanker::State::pages(std::uint32_t layer, std::uint32_t head) const {
  HeadPages result;
  const auto at = [&](const KvArray<const std::byte>& array, std::uint32_t block) {
    const std::int64_t offset = static_cast<std::int64_t>(view.physical(block)) * array.block_stride;
    return reinterpret_cast<const Half*>(array.layers[layer] + offset + head * array.head_stride);
  };
  if (in_place) {
    for (std::uint32_t block = 0; block < view.blocks(); ++block) {
      result.pages.push_back({at(view.keys, block), at(view.values, block)});
    }
    return result;
  }
  assert(shape.page_tokens == kBlockTokens);  // so that a page is laid out as a block of rows is
  result.copies = AlignedBuffer(shape.pages_for(view.tokens) * shape.page_bytes());
  HalfBlock block(view.geometry);
  std::byte* copy = result.copies.data();
  for (std::uint32_t first = 0; first < view.tokens; first += kBlockTokens, copy += shape.page_bytes()) {
    const std::uint32_t count = std::min(kBlockTokens, view.tokens - first);
    std::memcpy(copy, read_tokens(copies, layer, head, first, count, block).keys, shape.page_bytes());
    result.pages.push_back(PageView::of(copy, shape));
  }
  return result;
}

void RunRanker::State::score(std::uint32_t index) {
  std::vector<HeadPages> heads;
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) heads.push_back(pages(layers[index], head));
  const EntryLayer layer(std::move(heads), shape, view.tokens, layers[index], first_position, model, *observations);
  if (budget) return scorer->score(layer.kv(), std::span(scores).subspan(index * layer_size(), layer_size()));
  std::vector<float> of_layer(layer_size());
  scorer->score(layer.kv(), of_layer);
  for (std::size_t first = 0; first < of_layer.size(); first += view.tokens) {
    cut_head(std::span(of_layer).subspan(first, view.tokens),
             std::span(tier_of).subspan(index * layer_size() + first, view.tokens));
  }
}

RunRanker::RunRanker(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunRanker::~RunRanker() = default;
RunRanker::RunRanker(RunRanker&&) noexcept = default;
RunRanker& RunRanker::operator=(RunRanker&&) noexcept = default;

Result<RunRanker> RunRanker::start(KvView run, std::string_view ranking, std::uint32_t first_position,
                                   const ScorerOptions& options, const Observations& observations,
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
  const bool in_place = holds_pages(run);
  const PageShape shape = {.layers = geometry.layers,
                           .kv_heads = geometry.kv_heads,
                           .head_dim = geometry.head_dim,
                           .page_tokens = in_place ? geometry.block_tokens : kBlockTokens};
  SHALE_ASSIGN(std::unique_ptr<Scorer> scorer,
               ready_scorer(method.scorer, options, shape, run.tokens, observations, model));
  std::unique_ptr<Budget> budget;
  if (!method.budget.empty()) {
    SHALE_ASSIGN(budget, make_budget(method.budget));
  }
  std::vector<std::uint32_t> layers;
  for (std::uint32_t layer = 0; layer < geometry.layers; ++layer) {
    if (model.windows.empty() || model.windows[layer] == 0) layers.push_back(layer);
  }
  auto state = std::unique_ptr<State>(new State{.view = std::move(run),
                                                .copies = {},
                                                .shape = shape,
                                                .in_place = in_place,
                                                .name = std::string(ranking),
                                                .scorer = std::move(scorer),
                                                .budget = std::move(budget),
                                                .first_position = first_position,
                                                .scorer_window = options.window,
                                                .observations = &observations,
                                                .model = model,
                                                .layers = std::move(layers),
                                                .scores = {},
                                                .tier_of = {}});
  state->copies = TokenCopies(state->view);
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
    cut_tier(*s.budget, {layers, s.shape.kv_heads, s.view.tokens, s.scores}, s.scorer_window, s.tiers_cut++, s.tier_of);
  }
  return s.layers_scored < layers || (s.budget && layers > 0 && s.tiers_cut + 1 < kImportanceTiers);
}

Ranking RunRanker::finish() {
  State& s = *state_;
  Ranking ranking{std::move(s.name), TierMap(s.shape.pages_per_slab(), s.view.tokens)};
  std::size_t at = 0;
  for (const std::uint32_t layer : s.layers) {
    for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) {
      for (std::uint32_t token = 0; token < s.view.tokens; ++token) {
        ranking.tiers.set(s.shape.page_index(layer, head), token, s.tier_of[at++]);
      }
    }
  }
  return ranking;
}

}  // namespace shale
