#include "scoring/scorer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

#include "scoring/registry.h"

namespace shale {
namespace {

template <class Element>
void check(const LayerKv<Element>& layer, std::span<float> scores) {
  assert(scores.size() == std::size_t{layer.kv_heads} * layer.tokens);
  assert(layer.pages.size() == std::size_t{layer.kv_heads} * layer.pages_per_head());
  assert(layer.block_size % 8 == 0);
  static_cast<void>(layer);
  static_cast<void>(scores);
}

void sink_unusable(std::span<float> scores) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float& score : scores) score = score < kInfinity ? score : -kInfinity;
}

// Larger for better scores: an order-preserving map of the float's bits, NaN below everything.
std::uint32_t sort_key(float score) {
  if (std::isnan(score)) return 0;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0f : score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace

void Scorer::score(const LayerKv<Half>& layer, std::span<float> scores) const {
  check(layer, scores);
  if (layer.tokens > 0) score_impl(layer, scores);
  sink_unusable(scores);
}

void Scorer::score(const LayerKv<float>& layer, std::span<float> scores) const {
  check(layer, scores);
  if (layer.tokens > 0) score_impl(layer, scores);
  sink_unusable(scores);
}

std::string missing_needs(const ScorerNeeds& needs, const ScorerNeeds& given) {
  std::vector<std::string> missing;
  const auto want = [&](bool needed, bool offered, std::string what) {
    if (needed && !offered) missing.push_back(std::move(what));
  };
  want(needs.keys, given.keys, "keys");
  want(needs.values, given.values, "values");
  want(needs.last_queries > 0, given.last_queries >= needs.last_queries,
       fmt::format("the queries of the last {} tokens", needs.last_queries));
  want(needs.attention_sums, given.attention_sums, "the sum of the attention that each token received");
  want(needs.query_moments, given.query_moments, "the mean and covariance of the queries before rotation");
  want(needs.repeat_attention, given.repeat_attention, "the attention of the model while it repeats the context");
  want(needs.rope, given.rope, "the rotation of the keys");
  want(needs.calibration, given.calibration, "a calibration of the model");
  return fmt::format("{}", fmt::join(missing, " and "));
}

std::vector<std::string_view> scorer_names() {
  std::vector<std::string_view> names;
  for (const ScorerEntry& entry : kScorers) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<Scorer>> make_scorer(std::string_view name, const ScorerOptions& options) {
  for (const ScorerEntry& entry : kScorers) {
    if (entry.name == name) return entry.make(options);
  }
  return fail(ErrorCode::kInvalidArgument, "unknown scorer '{}'; known are {}", name, fmt::join(scorer_names(), ", "));
}

Status check_window(std::string_view scorer, const ScorerOptions& options) {
  if (options.window == 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: a window of 0 queries observes nothing", scorer);
  }
  if (options.kernel % 2 == 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: a pooling kernel of {} has no middle; use an odd one", scorer,
                options.kernel);
  }
  return {};
}

std::vector<std::uint32_t> ranking(std::span<const float> scores) {
  // One 64-bit key a token sorts faster than a comparison through the scores: the score above, the position below.
  std::vector<std::uint64_t> keys(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) keys[i] = std::uint64_t{sort_key(scores[i])} << 32 | i;
  std::sort(keys.begin(), keys.end(), std::greater<>());
  std::vector<std::uint32_t> tokens(scores.size());
  std::transform(keys.begin(), keys.end(), tokens.begin(),
                 [](std::uint64_t key) { return static_cast<std::uint32_t>(key); });
  return tokens;
}

std::uint32_t kept_tokens(std::uint32_t tokens, double keep) {
  assert(keep > 0 && keep <= 1);
  return std::min(tokens, std::max(1u, static_cast<std::uint32_t>(std::floor(tokens * keep))));
}

}  // namespace shale
