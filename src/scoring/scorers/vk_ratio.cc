// vk_ratio: ‖v‖₂ / ‖k‖₂ (PagedEviction). A zero key's norm counts as the smallest normal float.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/vk_ratio.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <cfloat>

#include "scoring/keys-inl.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::vk_ratio::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> ratio(D d, hn::Vec<D> value_squares, hn::Vec<D> key_squares) {
  const auto norm = hn::Max(hn::Sqrt(key_squares), hn::Set(d, FLT_MIN));
  const auto quotient = hn::Min(hn::Div(hn::Sqrt(value_squares), norm), hn::Set(d, FLT_MAX));
  return hn::IfThenElse(hn::Lt(hn::Add(value_squares, key_squares), hn::Inf(d)), quotient, hn::NaN(d));
}

template <class Element, class D>
void score_head(const LayerKv<Element>& layer, std::uint32_t head, D d, float* scores) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  for_each_columns(d, layer, head, [&](const auto& columns, const auto& next, std::uint32_t token) HWY_ATTR {
    hn::Vec<D> keys[kColumns], ratios[kColumns];
    key_squares(d, layer, columns, next, keys);
    HWY_ALIGN float values[kColumns * 16];
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const std::size_t row = std::size_t{lane} * layer.head_dim;
      for (std::uint32_t i = 0; i < kColumns; ++i) {
        const auto* ahead = reinterpret_cast<const std::byte*>(next.values[i] + row);
        for (std::size_t byte = 0; byte < layer.head_dim * sizeof(Element); byte += 64) prefetch(ahead + byte);
        values[i * lanes + lane] = value_squares(d, columns.values[i] + row, layer.head_dim);
      }
    }
    for (std::uint32_t i = 0; i < kColumns; ++i) ratios[i] = ratio(d, hn::Load(d, values + i * lanes), keys[i]);
    store_columns(d, ratios, layer.tokens - token, scores + token);
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

}  // namespace shale::vk_ratio::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace vk_ratio {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class VkRatio final : public Scorer {
 public:
  std::string_view name() const override { return "vk_ratio"; }
  ScorerNeeds needs() const override { return {.keys = true, .values = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, scores.data());
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, scores.data());
  }
};

}  // namespace vk_ratio

Result<std::unique_ptr<Scorer>> make_vk_ratio(const ScorerOptions&) { return std::make_unique<vk_ratio::VkRatio>(); }

}  // namespace shale
#endif
