#include "profile/context_scores.h"

#include "codec/ranking.h"
#include "codec/views/sequence_pages.h"
#include "codec/views/view_layer.h"

namespace shale {

Result<std::vector<float>> score_context(Engine& engine, const ExactContext& context, std::string_view name,
                                         const ScorerOptions& options) {
  const Cache& cache = engine.cache();
  const ModelTraits& model = cache.options().model;
  const AttentionStatistics& statistics = context.run.statistics;
  const std::uint32_t tokens = context.sequence.length();
  SHALE_ASSIGN(const auto scorer, make_scorer(name, options));
  if (const std::string missing = missing_needs(scorer->needs(), tokens, statistics, model); !missing.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the context cannot be ranked by {} without {}", name, missing);
  }
  Executor& executor = engine.model().executor();
  const SequencePages pages(context.sequence, tokens, executor);
  const PageShape& shape = pages->shape();
  const std::size_t per_layer = std::size_t{shape.kv_heads} * tokens;
  const std::vector<std::uint32_t> layers = ranked_layers(shape.layers, model.windows);
  std::vector<float> scores(layers.size() * per_layer);
  executor.parallel_for(layers.size(), [&](std::size_t i) {
    const std::uint32_t layer = layers[i];
    const ViewLayer of_context(pages->heads(layer), shape, tokens, layer, context.run.first, model, statistics);
    scorer->score(of_context.kv(), std::span(scores).subspan(i * per_layer, per_layer));
  });
  return scores;
}

}  // namespace shale
