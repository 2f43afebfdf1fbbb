#include "codec/views/view_layer.h"

#include "scoring/calibration.h"

namespace shale {

Result<std::unique_ptr<Scorer>> ready_scorer(std::string_view name, const ScorerOptions& options,
                                             const PageShape& shape, std::uint32_t tokens,
                                             const AttentionStatistics& statistics, const ModelTraits& model) {
  SHALE_ASSIGN(std::unique_ptr<Scorer> scorer, make_scorer(name, options));
  const std::string missing = missing_needs(scorer->needs(), tokens, statistics, model);
  if (!missing.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} needs {}; this was not gathered", name, missing);
  }
  if (scorer->needs().calibration &&
      (model.calibration->layers() < shape.layers || model.calibration->query_heads() % shape.kv_heads != 0 ||
       (!statistics.empty() && model.calibration->query_heads() != statistics.query_heads))) {
    return fail(ErrorCode::kInvalidArgument,
                "the calibration of {} layers and {} query heads is not of {} and {} KV heads",
                model.calibration->layers(), model.calibration->query_heads(), shape.layers, shape.kv_heads);
  }
  if (!statistics.empty() &&
      (!statistics.consistent() || statistics.layers != shape.layers || statistics.tokens != tokens ||
       statistics.kv_heads != shape.kv_heads || statistics.head_dim != shape.head_dim || statistics.query_heads == 0 ||
       statistics.query_heads % shape.kv_heads != 0)) {
    return fail(ErrorCode::kInvalidArgument, "what was observed is not of {} tokens, {} layers and {} KV heads", tokens,
                shape.layers, shape.kv_heads);
  }
  return scorer;
}

ViewLayer::ViewLayer(std::vector<HeadPages> heads, const PageShape& shape, std::uint32_t tokens, std::uint32_t layer,
                     std::uint32_t first_position, const ModelTraits& model, const AttentionStatistics& statistics)
    : heads_(std::move(heads)) {
  for (const HeadPages& head : heads_) {
    for (const PageView& page : head.pages) all_.push_back({page.keys, page.values});
  }
  kv_.tokens = tokens;
  kv_.kv_heads = shape.kv_heads;
  kv_.head_dim = shape.head_dim;
  kv_.block_size = shape.block_size;
  kv_.layer = layer;
  kv_.pages = all_;
  kv_.first_position = first_position;
  if (!model.ropes.empty()) kv_.rope = model.ropes[layer];
  kv_.attention_scale = model.attention_scale;
  kv_.calibration = model.calibration;
  statistics.hand_over(layer, kv_);
  // A calibration says for each query head what it is like, without one having been seen.
  if (kv_.query_heads == 0 && model.calibration) kv_.query_heads = model.calibration->query_heads();
}

}  // namespace shale
