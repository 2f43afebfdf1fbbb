// What compression does to attention over a context, before anybody asks anything: cheap signs of how answers will
// fare.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/ranking.h"
#include "core/executor.h"
#include "profile/exact_context.h"
#include "quantizers/quantizer.h"

namespace shale {

inline constexpr std::uint32_t kSignalQueries = 4;  // of each query head, the context's last

struct ContextSignals {
  double mass = 0;   // share of attention that falls on the tokens kept
  double error = 0;  // distortion of attention's output as quantizers/distortion.h predicts it
};

struct SignalConfiguration {
  TierMap tiers;
  // Of each tier that is kept, the most important first; null: as computed.
  std::vector<std::unique_ptr<Quantizer>> quantizers;
};

// Means over all heads, one a configuration, of the first `tokens` tokens of the context, which was observed with
// kSignalQueries last queries or more. Tokens are coded tier by tier, as `shale compress` predicts them. Attention is
// that of these queries at the model's scale, taken once for all configurations.
std::vector<ContextSignals> context_signals(const ExactContext& context, std::uint32_t tokens,
                                            std::span<const SignalConfiguration> configurations, float attention_scale,
                                            Executor& executor);

}  // namespace shale
