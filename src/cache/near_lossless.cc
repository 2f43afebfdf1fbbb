#include "cache/near_lossless.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "codec/views/sequence_view.h"
#include "codec/views/view_pages.h"
#include "quantizers/distortion.h"
#include "quantizers/token_copy.h"

namespace shale {
namespace {

constexpr std::uint32_t kTokensMax = 256, kQueries = 4;

// One KV head a layer.
std::uint32_t head_of(std::uint32_t layer, const PageShape& shape) { return layer % shape.kv_heads; }

// The last of all query heads that share the KV head.
std::vector<float> last_queries(const AttentionStatistics& observed, std::uint32_t layer, std::uint32_t head) {
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

std::optional<CodingErrors> CodingErrors::start(const PageShape& shape, std::uint32_t first, std::uint32_t tokens,
                                                const AttentionStatistics& statistics, float attention_scale,
                                                std::vector<std::unique_ptr<Quantizer>> quantizers) {
  const bool queries = statistics.window > 0 && !statistics.queries.empty();
  if (!queries || tokens == 0 || shape.element != PageElement::kHalf) return std::nullopt;
  const std::uint32_t sample = std::min(tokens, kTokensMax);
  CodingErrors errors(first + tokens - sample, sample, attention_scale);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    errors.queries_.push_back(last_queries(statistics, layer, head_of(layer, shape)));
  }
  for (std::unique_ptr<Quantizer>& quantizer : quantizers) {
    const bool codes = shape.head_dim % quantizer->channel_multiple() == 0;
    errors.measured_.push_back({std::move(quantizer), codes ? 0 : std::numeric_limits<double>::infinity()});
  }
  return errors;
}

bool CodingErrors::step(const Sequence& sequence) {
  const PageShape& shape = sequence.pool().shape();
  const std::uint32_t head = head_of(layer_, shape);
  std::vector<Half> keys(std::size_t{shape.head_dim} * tokens_), values(keys.size());
  const KvRows<Half> rows{keys.data(), values.data(), tokens_, tokens_, shape.head_dim};
  gather_tokens(ViewPages(view_of(sequence, first_, tokens_)).head(layer_, head).pages, shape, 0, tokens_, rows, 0);
  std::vector<std::uint32_t> all(tokens_);
  std::iota(all.begin(), all.end(), 0);
  const HeadDistortion distortion({keys.data(), values.data(), tokens_, tokens_, shape.head_dim}, queries_[layer_],
                                  attention_scale_);
  for (Measured& each : measured_) {
    if (std::isinf(each.squared)) continue;
    const HeadDistortion::Coded coded{all, &each.quantizer->of_head(layer_ * shape.kv_heads + head)};
    each.squared += distortion.measured({&coded, 1});
  }
  return ++layer_ < shape.layers;
}

double CodingErrors::error(std::size_t i) const {
  return std::sqrt(measured_[i].squared / static_cast<double>(queries_.size()));
}

}  // namespace shale
