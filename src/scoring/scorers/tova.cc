// tova (Oren et al. 2024, arXiv 2401.06104): the softmax attention of the last query, mean over all query heads of the
// layer and so the same for every KV head. The last token gets the maximum + 1. Some texts call it a running sum; here
// it is the last query.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/tova.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/registry.h"
#include "scoring/scorers/window.h"

HWY_BEFORE_NAMESPACE();
namespace shale::tova::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// A token whose key is not finite in one KV head receives nothing there, and counts in the others.
template <class Element>
void score_layer(const LayerKv<Element>& layer, std::span<float> scores) {
  const std::uint32_t n = layer.tokens;
  std::vector<float> mean(n);
  std::ranges::fill(scores, 0.0f);
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    const std::span head_scores = scores.subspan(std::size_t{head} * n, n);
    add_attention(layer, head, 1, head_scores);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!std::isnan(head_scores[i])) mean[i] += head_scores[i] / static_cast<float>(layer.kv_heads);
    }
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!std::isnan(scores[i])) scores[i] = mean[i % n];
  }
  put_first(scores, n, n - 1, n);
}

void score_half(const LayerKv<Half>& layer, std::span<float> scores) { score_layer(layer, scores); }
void score_float(const LayerKv<float>& layer, std::span<float> scores) { score_layer(layer, scores); }

}  // namespace shale::tova::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace tova {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class Tova final : public Scorer {
 public:
  std::string_view name() const override { return "tova"; }
  ScorerNeeds needs() const override { return {.keys = true, .last_queries = 1}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, scores);
  }
};

}  // namespace tova

Result<std::unique_ptr<Scorer>> make_tova(const ScorerOptions&) { return std::make_unique<tova::Tova>(); }

}  // namespace shale
#endif
