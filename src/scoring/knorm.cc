// knorm: -‖k‖₂. A low key norm goes with high attention (Devoto et al. 2024, arXiv 2406.11430).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/knorm.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include "scoring/keys-inl.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::knorm::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

template <class Element, class D>
void score_head(const LayerKv<Element>& layer, std::uint32_t head, D d, float* scores) {
  const auto pages = layer.head(head);
  for (std::uint32_t p = 0; p < pages.size(); ++p) {
    const Element* ahead = page_ahead(pages, p).keys;
    for (std::uint32_t slot = 0; slot < layer.page_tokens; slot += static_cast<std::uint32_t>(hn::Lanes(d))) {
      const std::uint32_t token = p * layer.page_tokens + slot;
      if (token >= layer.tokens) break;
      const auto squares = key_squares(d, pages[p].keys + slot, layer.page_tokens, layer.head_dim, ahead + slot);
      store_first(d, hn::Neg(hn::Sqrt(squares)), scores + token, layer.tokens - token);
    }
  }
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, float* scores) {
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    float* row = scores + std::size_t{head} * layer.tokens;
    with_page_lanes(layer.page_tokens, [&](auto d) HWY_ATTR { score_head(layer, head, d, row); });
  }
}

void score_half(const LayerKv<Half>& layer, float* scores) { score_layer(layer, scores); }
void score_float(const LayerKv<float>& layer, float* scores) { score_layer(layer, scores); }

}  // namespace shale::knorm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace knorm {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class KNorm final : public Scorer {
 public:
  std::string_view name() const override { return "knorm"; }
  ScorerNeeds needs() const override { return {.keys = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, scores.data());
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, scores.data());
  }
};

}  // namespace knorm

Result<std::unique_ptr<Scorer>> make_knorm(const ScorerOptions&) { return std::make_unique<knorm::KNorm>(); }

}  // namespace shale
#endif
