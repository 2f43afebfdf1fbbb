// knorm: -‖k‖₂. A low key norm goes with high attention (Devoto et al. 2024, arXiv 2406.11430).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/knorm.cc"
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
  for_each_columns(d, layer, head, [&](const auto& columns, const auto& next, std::uint32_t token) HWY_ATTR {
    hn::Vec<D> norms[kColumns];
    key_squares(d, layer, columns, next, norms);
    for (auto& norm : norms) norm = hn::Neg(hn::Sqrt(norm));
    store_columns(d, norms, layer.tokens - token, scores + token);
  });
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, float* scores) {
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    float* row = scores + std::size_t{head} * layer.tokens;
    with_page_lanes(layer.block_size, [&](auto d) HWY_ATTR { score_head(layer, head, d, row); });
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
