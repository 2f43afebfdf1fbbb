// keydiff: -cos(k_i, a) with the anchor a = mean_j(k_j / ‖k_j‖): keys that point away from the rest matter (Park et al.
// 2025, arXiv 2504.15364). Two passes over the keys. A zero key, and any key under a zero anchor, scores 0.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/keydiff.cc"
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
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  for_each_columns(d, layer, head, [&](const auto& columns, const auto& next, std::uint32_t token) HWY_ATTR {
    hn::Vec<D> inverse[kColumns];
    key_squares(d, layer, columns, next, inverse);
    for (auto& each : inverse) each = inverse_norm(d, each);
    store_columns(d, inverse, layer.tokens - token, inverses + token);
    hn::Mask<D> used[kColumns];
    for (std::uint32_t i = 0; i < kColumns; ++i) {
      const std::uint32_t first = token + i * lanes;
      used[i] = hn::And(hn::FirstN(d, first < layer.tokens ? layer.tokens - first : 0), hn::Eq(inverse[i], inverse[i]));
      inverse[i] = hn::IfThenElseZero(used[i], inverse[i]);
    }
    for (std::uint32_t c = 0; c < layer.head_dim; ++c) {
      auto sum = hn::Load(d, sums + std::size_t{c} * lanes);
      HWY_UNROLL(8)
      for (std::uint32_t i = 0; i < kColumns; ++i) {
        const auto key = load(d, columns.keys[i] + std::size_t{c} * layer.block_size);
        sum = hn::MulAdd(hn::IfThenElseZero(used[i], key), inverse[i], sum);
      }
      hn::Store(sum, d, sums + std::size_t{c} * lanes);
    }
  });
}

// Second pass: turns `scores` from 1/‖k_i‖ into -cos. `direction` is the anchor, normalised.
template <class Element, class D>
void score_tokens(const LayerKv<Element>& layer, std::uint32_t head, D d, const float* direction, float* scores) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  for_each_columns(d, layer, head, [&](const auto& columns, const auto& next, std::uint32_t token) HWY_ATTR {
    hn::Vec<D> dots[kColumns];
    sum_channels(d, layer, columns, next, dots, [&](std::uint32_t c, hn::Vec<D> key, hn::Vec<D> sum) HWY_ATTR {
      return hn::MulAdd(key, hn::Set(d, direction[c]), sum);
    });
    HWY_ALIGN float inverse[kColumns * 16] = {};
    std::copy_n(scores + token, std::min(layer.tokens - token, kColumns * lanes), inverse);
    for (std::uint32_t i = 0; i < kColumns; ++i) dots[i] = hn::Neg(hn::Mul(dots[i], hn::Load(d, inverse + i * lanes)));
    store_columns(d, dots, layer.tokens - token, scores + token);
  });
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
  with_page_lanes(layer.block_size, [&](auto d) HWY_ATTR {
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
