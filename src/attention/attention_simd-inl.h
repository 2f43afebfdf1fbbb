// What the attention kernels share. Included once per instruction set.
#if defined(SHALE_ATTENTION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_ATTENTION_SIMD_INL_H_
#undef SHALE_ATTENTION_SIMD_INL_H_
#else
#define SHALE_ATTENTION_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "core/simd-inl.h"
#include "paging/page_pool.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Head dimensions and page sizes are multiples of 8, so whole vectors and then vectors of 8 lanes cover every row.
using Wide = HWY_CAPPED(float, 16);
using Eight = HWY_CAPPED(float, 8);

// Kernels are made for pages of halves and of int8, whose scales they apply to sums over a group of channels and to
// softmax weights.
template <class View>
inline constexpr bool kScaled = std::is_same_v<View, Int8PageView>;

template <class View>
HWY_INLINE View view_of(const HostView& pool, PageId page) {
  return View::of(pool.bytes(page).data(), pool.shape());
}

// 2^x for x ≤ 0, within 3e-7 of it; 0 below -126.5 and for minus infinity. 2^0 is exactly 1.
// x = n + f with |f| ≤ 1/2, and 2^f by the polynomial that interpolates it in Chebyshev's nodes (2.6e-9 off).
template <class D>
HWY_INLINE hn::Vec<D> exp2_negative(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  x = hn::Max(x, hn::Set(d, -127.0f));
  const auto n = hn::NearestInt(x);
  const auto f = hn::Sub(x, hn::ConvertTo(d, n));
  auto p = hn::Set(d, 1.546144469646172e-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.3400428177419153e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.61805667852609e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550327226670944e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022650922288827f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931472067028321f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));  // 0 for n = -127
  return hn::Mul(p, power);
}

HWY_INLINE float exp2_negative(float x) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(exp2_negative(d, hn::Set(d, x)));
}

// Turns the scores of a block, whole vectors of them, into weights 2^(score - peak) and adds those to `weight`. Raises
// the peak where a score is above it, which soon becomes rare; returns by how much older sums shrink.
HWY_INLINE float soften(float* scores, std::size_t tokens, float& peak, float& weight) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  auto highest = hn::Load(d, scores);
  for (std::size_t t = lanes; t < tokens; t += lanes) highest = hn::Max(highest, hn::Load(d, scores + t));
  float shrink = 1;
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(highest, hn::Set(d, peak))))) {
    const float raised = hn::GetLane(hn::MaxOfLanes(d, highest));
    shrink = exp2_negative(peak - raised);
    weight *= shrink;
    peak = raised;
  }
  const auto base = hn::Set(d, peak);
  auto sum = hn::Zero(d);
  for (std::size_t t = 0; t < tokens; t += lanes) {
    const auto weights = exp2_negative(d, hn::Sub(hn::Load(d, scores + t), base));
    hn::Store(weights, d, scores + t);
    sum = hn::Add(sum, weights);
  }
  weight += hn::GetLane(hn::SumOfLanes(d, sum));
  return shrink;
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
