#include "model/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shale {

Logprobs logprobs_of(std::span<const float> logits, Token drawn, std::uint32_t top) {
  const double best = std::ranges::max(logits);
  const float own = logits[static_cast<std::size_t>(drawn)];
  const auto before = logits.first(static_cast<std::size_t>(drawn));
  double total = 0;
  std::uint32_t likelier = static_cast<std::uint32_t>(std::ranges::count(before, own));
  for (const float logit : logits) {
    total += std::exp(logit - best);
    likelier += logit > own;
  }
  const double all = best + std::log(total);
  const auto logit_of = [&](Token token) { return logits[static_cast<std::size_t>(token)]; };
  const auto logprob = [&](Token token) { return static_cast<float>(logit_of(token) - all); };

  Logprobs result{.drawn = logprob(drawn), .rank = likelier + 1};
  if (top == 0) return result;
  std::vector<Token> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(top, tokens.size()));
  std::ranges::partial_sort(
      tokens, end, [&](Token a, Token b) { return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b; });
  for (auto token = tokens.begin(); token != end; ++token) result.top.emplace_back(*token, logprob(*token));
  return result;
}

}  // namespace shale
