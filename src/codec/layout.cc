#include "codec/layout.h"

#include <algorithm>

#include "codec/object.h"
#include "core/aligned_buffer.h"
#include "scoring/scorer.h"

namespace shale {

Result<ObjectLayout> ObjectLayout::make(const PageShape& shape, const Method& method, std::uint32_t tokens) {
  if (tokens == 0) return fail(ErrorCode::kInvalidArgument, "an entry without tokens has nothing to store");
  ObjectLayout layout;
  layout.shape_ = shape;
  layout.tokens_ = tokens;
  layout.full_ = method.is_full();
  layout.ranked_ = !method.scorer.empty();
  if (layout.ranked_) SHALE_TRY(make_scorer(method.scorer));
  SHALE_ASSIGN(layout.quantizer_, make_quantizer(method.quantizer));
  if (shape.head_dim % layout.quantizer_->channel_multiple() != 0) {
    return fail(ErrorCode::kUnsupported, "{} needs a head dimension that is a multiple of {}; this model has {}",
                method.quantizer, layout.quantizer_->channel_multiple(), shape.head_dim);
  }
  if (layout.ranked_) {
    for (const double keep : kKeepGrid) layout.strata_tokens_.push_back(kept_tokens(tokens, keep));
  } else {
    layout.strata_tokens_ = {tokens};
  }
  return layout;
}

std::size_t ObjectLayout::section_bytes(std::uint32_t stratum) const {
  return round_up(bitmap_bytes() + quantizer_->encoded_bytes(stratum_tokens(stratum), shape_.head_dim),
                  kSectionAlignment);
}

std::size_t ObjectLayout::chunk_bytes(std::uint32_t stratum, std::uint32_t layers) const {
  const std::size_t heads = std::size_t{layers} * shape_.kv_heads;
  return heads * (full_ ? shape_.pages_for(tokens_) * shape_.page_bytes() : section_bytes(stratum));
}

std::uint32_t layers_per_group(const PageShape& shape, const Method& method, std::uint32_t tokens) {
  constexpr std::size_t kChunkBytes = 256 * 1024;
  const auto layout = ObjectLayout::make(shape, method, tokens);
  if (!layout) return shape.layers;
  std::size_t smallest = layout->chunk_bytes(0, 1);
  for (std::uint32_t s = 1; s < layout->strata(); ++s) smallest = std::min(smallest, layout->chunk_bytes(s, 1));
  return static_cast<std::uint32_t>(std::clamp<std::size_t>((kChunkBytes + smallest - 1) / smallest, 1, shape.layers));
}

}  // namespace shale
