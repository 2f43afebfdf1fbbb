#include "profile/context_signals.h"

#include <algorithm>
#include <cassert>

#include "codec/views/sequence_pages.h"
#include "quantizers/distortion.h"
#include "quantizers/token_copy.h"

namespace shale {
namespace {

HeadDistortion distortion_of(const ViewPages& pages, std::uint32_t index, const AttentionStatistics& observed,
                             float attention_scale) {
  const PageShape& shape = pages.shape();
  const std::uint32_t tokens = pages.tokens();
  const std::uint32_t layer = index / shape.kv_heads, head = index % shape.kv_heads;
  const std::size_t d = shape.head_dim, group = observed.query_heads / shape.kv_heads;
  std::vector<Half> keys(d * tokens), values(keys.size());
  gather_tokens(pages.head(layer, head).pages, shape, 0, tokens,
                {keys.data(), values.data(), tokens, tokens, shape.head_dim}, 0);
  const std::uint32_t used = std::min(kSignalQueries, observed.window);
  std::vector<float> queries;
  for (std::size_t row = layer * observed.query_heads + head * group, end = row + group; row < end; ++row) {
    const auto last = std::span(observed.queries).subspan(((row + 1) * observed.window - used) * d, used * d);
    queries.insert(queries.end(), last.begin(), last.end());
  }
  return HeadDistortion({keys.data(), values.data(), tokens, tokens, shape.head_dim}, queries, attention_scale);
}

}  // namespace

std::vector<ContextSignals> context_signals(const ExactContext& context, std::uint32_t tokens,
                                            std::span<const SignalConfiguration> configurations, float attention_scale,
                                            Executor& executor) {
  const AttentionStatistics& observed = context.run.statistics;
  assert(observed.window > 0);
  const SequencePages pages(context.sequence, tokens, executor);
  const std::size_t heads = pages->shape().pages_per_block();
  std::vector<std::vector<ContextSignals>> of_heads(heads, std::vector<ContextSignals>(configurations.size()));
  executor.parallel_for(heads, [&](std::size_t i) {
    const auto index = static_cast<std::uint32_t>(i);
    const HeadDistortion distortion = distortion_of(*pages, index, observed, attention_scale);
    for (std::size_t c = 0; c < configurations.size(); ++c) {
      const auto& [tiers, quantizers] = configurations[c];
      std::vector<std::vector<std::uint32_t>> by_tier(kImportanceTiers);
      for (std::uint32_t t = 0; t < tokens; ++t) by_tier[tiers.tier(index, t)].push_back(t);
      for (std::uint32_t tier = 0; tier < kImportanceTiers; ++tier) {
        if (tier >= quantizers.size()) {
          of_heads[i][c].error += distortion.dropped(by_tier[tier]);
          continue;
        }
        of_heads[i][c].mass += distortion.attention(by_tier[tier]);
        if (const auto& coder = quantizers[tier]) {
          of_heads[i][c].error += distortion.coded(by_tier[tier], coder->of_head(index));
        }
      }
    }
  });
  std::vector<ContextSignals> means(configurations.size());
  for (const auto& head : of_heads) {
    for (std::size_t c = 0; c < means.size(); ++c) {
      means[c].mass += head[c].mass / static_cast<double>(heads);
      means[c].error += head[c].error / static_cast<double>(heads);
    }
  }
  return means;
}

}  // namespace shale
