#include "profile/divergence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace shale {
namespace {

// KL(p ‖ q) of softmax(p), softmax(q): Σ softmax(p) (p − q) − log Z_p + log Z_q, with maxima taken out.
double kl_of_logits(std::span<const float> p, std::span<const float> q) {
  const float p_max = *std::ranges::max_element(p), q_max = *std::ranges::max_element(q);
  double p_sum = 0, q_sum = 0, weighted = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float a = p[i] - p_max, b = q[i] - q_max;
    const float weight = std::exp(a);
    p_sum += weight;
    q_sum += std::exp(b);
    if (weight > 0) weighted += static_cast<double>(weight) * (a - b);
  }
  return std::max(0.0, weighted / p_sum - std::log(p_sum) + std::log(q_sum));
}

}  // namespace

Token arg_max(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

Divergence divergence(std::span<const float> full, std::span<const float> compressed, std::span<const Token> reference,
                      std::size_t vocabulary) {
  assert(!reference.empty() && full.size() == reference.size() * vocabulary && compressed.size() == full.size());
  Divergence sum;
  for (std::size_t position = 0; position < reference.size(); ++position) {
    const auto q = compressed.subspan(position * vocabulary, vocabulary);
    if (!std::ranges::all_of(q, [](float logit) { return std::isfinite(logit); })) {
      sum.kl = std::numeric_limits<double>::infinity();
      continue;
    }
    sum.agreement += arg_max(q) == reference[position];
    sum.kl += kl_of_logits(full.subspan(position * vocabulary, vocabulary), q);
  }
  const auto positions = static_cast<double>(reference.size());
  return {sum.agreement / positions, sum.kl / positions};
}

}  // namespace shale
