// h2o (Zhang et al. 2023, arXiv 2306.14048): half of any number of tokens kept, rounded up, are the newest; the others
// are those of the rest that received the most attention from all queries. A larger number keeps all that a smaller one
// does, so the score is the token's place in that order: n for the first kept, 1 for the last.
#include <cmath>
#include <vector>

#include "scoring/registry.h"

namespace shale {
namespace {

class H2o final : public Scorer {
 public:
  std::string_view name() const override { return "h2o"; }
  ScorerNeeds needs() const override { return {.attention_sums = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { score_heads(layer, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { score_heads(layer, scores); }

  template <class Element>
  static void score_heads(const LayerKv<Element>& layer, std::span<float> scores) {
    const std::size_t n = layer.tokens;
    for (std::size_t first = 0; first < scores.size(); first += n) {
      score_head(layer.attention_sums.subspan(first, n), scores.subspan(first, n));
    }
  }

  static void score_head(std::span<const float> sums, std::span<float> scores) {
    const std::vector<std::uint32_t> hitters = ranking(sums);
    std::vector<bool> taken(sums.size());
    auto newest = static_cast<std::uint32_t>(sums.size());
    auto hitter = hitters.begin();
    for (std::size_t kept = 0; kept < sums.size(); ++kept) {
      std::uint32_t token = kept % 2 == 0 ? --newest : *hitter;
      while (taken[token]) token = *hitter++;  // one of the newest was kept as a hitter: one more hitter instead
      taken[token] = true;
      scores[token] = static_cast<float>(sums.size() - kept);
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (std::isnan(sums[i])) scores[i] = sums[i];
    }
  }
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_h2o(const ScorerOptions&) { return std::make_unique<H2o>(); }

}  // namespace shale
