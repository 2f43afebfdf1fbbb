#include "cache/near_lossless.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "codec/distortion.h"
#include "codec/sequence_view.h"
#include "codec/token_copy.h"
#include "codec/view_pages.h"

namespace shale {
namespace {

constexpr std::uint32_t kTokensMax = 256, kQueries = 4;

// The last of all query heads that share the KV head.
std::vector<float> queries_of(const Observations& observed, std::uint32_t layer, std::uint32_t head) {
  const std::size_t d = observed.head_dim, group = observed.query_heads / observed.kv_heads;
  const std::uint32_t used = std::min(kQueries, observed.window);
  std::vector<float> queries;
  for (std::size_t row = layer * observed.query_heads + head * group, end = row + group; row < end; ++row) {
    const auto last = std::span(observed.queries).subspan(((row + 1) * observed.window - used) * d, used * d);
    queries.insert(queries.end(), last.begin(), last.end());
  }
  return queries;
}

}  // namespace

std::optional<double> coding_error(const Sequence& sequence, std::uint32_t first, std::uint32_t tokens,
                                   const Observations& observations, const Quantizer& quantizer) {
  const PageShape& shape = sequence.pool().shape();
  const bool queries = observations.window > 0 && !observations.queries.empty();
  if (!queries || tokens == 0 || shape.element != PageElement::kHalf) return std::nullopt;
  if (shape.head_dim % quantizer.channel_multiple() != 0) return std::nullopt;
  const ViewPages pages(view_of(sequence, first, tokens));
  const std::uint32_t sample = std::min(tokens, kTokensMax);
  std::vector<Half> keys(std::size_t{shape.head_dim} * sample), values(keys.size());
  std::vector<std::uint32_t> all(sample);
  std::iota(all.begin(), all.end(), 0);
  double squared = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::uint32_t head = layer % shape.kv_heads;
    gather_tokens(pages.head(layer, head).pages, shape, tokens - sample, sample,
                  {keys.data(), values.data(), sample, sample, shape.head_dim}, 0);
    const HeadDistortion distortion({keys.data(), values.data(), sample, sample, shape.head_dim},
                                    queries_of(observations, layer, head));
    const HeadDistortion::Coded coded{all, &quantizer.of_head(layer * shape.kv_heads + head)};
    squared += distortion.measured({&coded, 1});
  }
  return std::sqrt(squared / shape.layers);
}

}  // namespace shale
