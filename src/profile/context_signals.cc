#include "profile/context_signals.h"

#include <algorithm>
#include <cassert>

#include "codec/head_distortion.h"
#include "codec/views/sequence_pages.h"

namespace shale {

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
    const HeadDistortion distortion = head_distortion(*pages, index, observed.queries, observed.query_heads,
                                                      observed.window, kSignalQueries, attention_scale);
    for (std::size_t c = 0; c < configurations.size(); ++c) {
      const auto& [tiers, quantizers] = configurations[c];
      const auto by_tier = tokens_by_tier(tiers, index);
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
