// keydiff: -cos(k_i, a) with the anchor a = mean_j(k_j / ‖k_j‖): keys that point away from the rest matter (Park et al.
// 2025, arXiv 2504.15364). Two passes over the keys. A zero key, and any key under a zero anchor, scores 0.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/keydiff.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <cmath>
#include <vector>

#include "scoring/keys-inl.h"
#include "scoring/registry.h"

HWY_BEFORE_NAMESPACE();
namespace shale::keydiff::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// 1/‖k‖; 0 for a zero key, NaN for one that is not finite.
template <class D>
HWY_INLINE hn::Vec<D> inverse_norm(D d, hn::Vec<D> squares) {
  const auto inverse = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(squares));
  const auto finite = hn::Lt(squares, hn::Inf(d));
  return hn::IfThenElse(finite, hn::IfThenElseZero(hn::Gt(squares, hn::Zero(d)), inverse), hn::NaN(d));
}

// First pass: leaves 1/‖k_i‖ in `inverses` and adds every normalised key to `sums`, [head_dim][lanes].
template <class Element, class D>
void sum_directions(const LayerKv<Element>& layer, std::uint32_t head, D d, float* inverses, float* sums) {
  const auto pages = layer.head(head);
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const std::uint32_t stride = layer.page_tokens;
  for (std::uint32_t p = 0; p < pages.size(); ++p) {
    const Element* ahead = page_ahead(pages, p).keys;
    for (std::uint32_t slot = 0; slot < stride; slot += lanes) {
      const std::uint32_t token = p * stride + slot;
      if (token >= layer.tokens) break;
      const Element* HWY_RESTRICT keys = pages[p].keys + slot;
      const auto inverse = inverse_norm(d, key_squares(d, keys, stride, layer.head_dim, ahead + slot));
      store_first(d, inverse, inverses + token, layer.tokens - token);
      const auto used = hn::And(hn::FirstN(d, layer.tokens - token), hn::Eq(inverse, inverse));
      for (std::uint32_t c = 0; c < layer.head_dim; ++c) {
        const auto key = hn::IfThenElseZero(used, load(d, keys + std::size_t{c} * stride));
        float* HWY_RESTRICT sum = sums + std::size_t{c} * lanes;
        hn::Store(hn::MulAdd(key, hn::IfThenElseZero(used, inverse), hn::Load(d, sum)), d, sum);
      }
    }
  }
}

// Second pass: turns `scores` from 1/‖k_i‖ into -cos. `direction` is the anchor, normalised.
template <class Element, class D>
void score_tokens(const LayerKv<Element>& layer, std::uint32_t head, D d, const float* direction, float* scores) {
  const auto pages = layer.head(head);
  for (std::uint32_t p = 0; p < pages.size(); ++p) {
    const Element* ahead = page_ahead(pages, p).keys;
    for (std::uint32_t slot = 0; slot < layer.page_tokens; slot += static_cast<std::uint32_t>(hn::Lanes(d))) {
      const std::uint32_t token = p * layer.page_tokens + slot;
      if (token >= layer.tokens) break;
      const auto dots = key_dots(d, pages[p].keys + slot, layer.page_tokens, layer.head_dim, direction, ahead + slot);
      HWY_ALIGN float inverse[16] = {};
      std::copy_n(scores + token, std::min<std::size_t>(layer.tokens - token, hn::Lanes(d)), inverse);
      store_first(d, hn::Neg(hn::Mul(dots, hn::Load(d, inverse))), scores + token, layer.tokens - token);
    }
  }
}

// Sums [head_dim][lanes] to the anchor's direction [head_dim]; the number of keys cancels out.
inline void normalise(const float* sums, std::size_t lanes, std::span<float> direction) {
  double squares = 0;
  for (std::size_t c = 0; c < direction.size(); ++c) {
    double sum = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) sum += sums[c * lanes + lane];
    direction[c] = static_cast<float>(sum);
    squares += sum * sum;
  }
  const float inverse = squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0.0f;
  for (float& value : direction) value *= inverse;
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, float* scores) {
  with_page_lanes(layer.page_tokens, [&](auto d) HWY_ATTR {
    const auto sums = hwy::AllocateAligned<float>(layer.head_dim * hn::Lanes(d));
    std::vector<float> direction(layer.head_dim);
    for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
      float* row = scores + std::size_t{head} * layer.tokens;
      std::fill_n(sums.get(), layer.head_dim * hn::Lanes(d), 0.0f);
      sum_directions(layer, head, d, row, sums.get());
      normalise(sums.get(), hn::Lanes(d), direction);
      score_tokens(layer, head, d, direction.data(), row);
    }
  });
}

void score_half(const LayerKv<Half>& layer, float* scores) { score_layer(layer, scores); }
void score_float(const LayerKv<float>& layer, float* scores) { score_layer(layer, scores); }

}  // namespace shale::keydiff::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace keydiff {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class KeyDiff final : public Scorer {
 public:
  std::string_view name() const override { return "keydiff"; }
  ScorerNeeds needs() const override { return {.keys = true}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, scores.data());
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, scores.data());
  }
};

}  // namespace keydiff

Result<std::unique_ptr<Scorer>> make_keydiff(const ScorerOptions&) { return std::make_unique<keydiff::KeyDiff>(); }

}  // namespace shale
#endif
