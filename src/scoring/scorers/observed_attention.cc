// observed_attention: the attention that a token received from all queries, divided by the number of queries that can
// see it (as in the library kvpress): h2o's sums, without the favour that old tokens enjoy and without its reserve.
#include "scoring/registry.h"

namespace shale {
namespace {

class ObservedAttention final : public Scorer {
 public:
  std::string_view name() const override { return "observed_attention"; }
  ScorerNeeds needs() const override { return {.attention_sums = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override { divide(layer, scores); }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override { divide(layer, scores); }

  template <class Element>
  static void divide(const LayerKv<Element>& layer, std::span<float> scores) {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::uint32_t later = layer.tokens - static_cast<std::uint32_t>(i % layer.tokens);
      scores[i] = layer.attention_sums[i] / static_cast<float>(later);
    }
  }
};

}  // namespace

Result<std::unique_ptr<Scorer>> make_observed_attention(const ScorerOptions&) {
  return std::make_unique<ObservedAttention>();
}

}  // namespace shale
