#include "codec/head_distortion.h"

#include <algorithm>

#include "quantizers/token_copy.h"

namespace shale {

HeadDistortion head_distortion(const ViewPages& pages, std::uint32_t index, std::span<const float> queries,
                               std::uint32_t query_heads, std::uint32_t window, std::uint32_t queries_max,
                               float attention_scale) {
  const PageShape& shape = pages.shape();
  const std::uint32_t tokens = pages.tokens();
  const std::uint32_t layer = index / shape.kv_heads, head = index % shape.kv_heads;
  const std::size_t d = shape.head_dim, group = query_heads / shape.kv_heads, used = std::min(queries_max, window);
  std::vector<Half> keys(d * tokens), values(keys.size());
  const HeadPages source = pages.head(layer, head);
  gather_tokens(source.pages, shape, 0, tokens, {keys.data(), values.data(), tokens, tokens, shape.head_dim}, 0);
  std::vector<float> last;
  const std::size_t first = std::size_t{layer} * query_heads + head * group;
  for (std::size_t row = first; row < first + group; ++row) {
    const auto of_row = queries.subspan(((row + 1) * window - used) * d, used * d);
    last.insert(last.end(), of_row.begin(), of_row.end());
  }
  return HeadDistortion({keys.data(), values.data(), tokens, tokens, shape.head_dim}, last, attention_scale);
}

std::vector<std::vector<std::uint32_t>> tokens_by_tier(const TierMap& tiers, std::uint32_t head) {
  std::vector<std::vector<std::uint32_t>> by_tier(kImportanceTiers);
  for (std::uint32_t token = 0; token < tiers.tokens(); ++token) by_tier[tiers.tier(head, token)].push_back(token);
  return by_tier;
}

}  // namespace shale
