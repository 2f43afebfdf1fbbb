// What quantizers share: reductions of rows, and scales.
#if defined(SHALE_CODEC_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CODEC_ROWS_INL_H_
#undef SHALE_CODEC_ROWS_INL_H_
#else
#define SHALE_CODEC_ROWS_INL_H_
#endif

#include <cstdint>

#include "core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

using Lanes8 = hn::FixedTag<std::int16_t, 8>;
using Floats = hn::CappedTag<float, 16>;

HWY_INLINE hn::Vec<Lanes8> load_bits(const Half* from) {
  return hn::LoadU(Lanes8(), reinterpret_cast<const std::int16_t*>(from));
}

// Maps binary16 bits to integers of the same order, and back.
template <class D>
HWY_INLINE hn::Vec<D> ordered(D d, hn::Vec<D> bits) {
  return hn::Xor(bits, hn::And(hn::ShiftRight<15>(bits), hn::Set(d, std::int16_t{0x7fff})));
}

// Reduces eight rows of eight lanes, [row][lane], to one vector: lane r is row r's. Each step interleaves two vectors
// and reduces by two, so three steps of shuffles serve eight rows at once.
template <class Op>
HWY_INLINE hn::Vec<Lanes8> reduce_rows(const std::int16_t* HWY_RESTRICT rows, const Op& op) {
  const Lanes8 d;
  const auto pair = [&](hn::Vec<Lanes8> a, hn::Vec<Lanes8> b)
                        HWY_ATTR { return op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  const auto row = [&](int r) HWY_ATTR { return hn::Load(d, rows + 8 * r); };
  const auto r04 = pair(row(0), row(4)), r26 = pair(row(2), row(6));
  const auto r15 = pair(row(1), row(5)), r37 = pair(row(3), row(7));
  return pair(pair(r04, r26), pair(r15, r37));
}

// The scale to store in binary16 where codes 0 … levels stand for low + code · scale: rounding never takes it below
// `exact`, so that whatever was largest stays within the codes, except where the largest code would then overflow. Zero
// stays zero. (A binary16 step is at most 2^-10 of the value, or 2^-24 where subnormal.)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V stored_scale(D d, V exact, float levels, V low) {
  const auto enlarged = hn::MulAdd(exact, hn::Set(d, 1.0f + 0x1p-11f), hn::Set(d, 0x1p-25f));
  const auto reach = hn::MulAdd(exact, hn::Set(d, levels * (1.0f + 0x1p-10f)), low);
  return hn::IfThenElse(hn::Gt(reach, hn::Set(d, 65504.0f)), hn::Mul(exact, hn::Set(d, 1.0f - 0x1p-10f)), enlarged);
}

// 1 / scale; 0 for zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V inverse_scale(D d, V scale) {
  return hn::IfThenElseZero(hn::Gt(scale, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), scale));
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
