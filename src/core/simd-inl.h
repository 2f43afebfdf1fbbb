// What every SIMD kernel needs, once per instruction set. Include after <hwy/foreach_target.h>, as Highway's own
// `-inl.h` files are. Lanes are float; pages are binary16 or int8, reference data float.
#if defined(SHALE_CORE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CORE_SIMD_INL_H_
#undef SHALE_CORE_SIMD_INL_H_
#else
#define SHALE_CORE_SIMD_INL_H_
#endif

#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "core/half.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Asks for the line that holds `from`, which will soon be read: into the second-level cache. Where memory is slower to
// answer than to deliver, as for pages scattered over a pool, that keeps far more lines on their way than the
// first-level cache has room to wait for.
HWY_INLINE void prefetch(const void* from) { __builtin_prefetch(from, 0, 2); }

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::int8_t* from) {
  return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(hn::Rebind<std::int8_t, D>(), from)));
}

// Highway's own conversions for machines without F16C know no infinities and no NaN, and truncate.
#undef SHALE_EMULATED_HALF
#if (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4) || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
#define SHALE_EMULATED_HALF 1
#else
#define SHALE_EMULATED_HALF 0
#endif

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  const hn::Rebind<hwy::float16_t, D> half;
  const auto value = hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#if SHALE_EMULATED_HALF
  const auto beyond = hn::Ge(hn::Abs(value), hn::Set(d, 65536.0f));  // what came of the largest exponent
  return hn::IfThenElse(beyond, hn::Or(value, hn::Inf(d)), value);
#else
  return value;
#endif
}

// Rounds to nearest, ties to even; overflow becomes infinity.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, Half* to) {
#if SHALE_EMULATED_HALF
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xfffu - 0x38000000u)));
  const auto aligned = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
  const auto subnormal = hn::Sub(aligned, hn::Set(du, 0x3f000000u));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x477ff000u)), half, hn::Set(du, 0x7c00u));
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), half);
  hn::StoreU(hn::TruncateTo(du16, hn::Or(half, sign)), du16, reinterpret_cast<std::uint16_t*>(to));
#else
  static_cast<void>(d);
  const hn::Rebind<hwy::float16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
#endif
}

// Stores the first `count` lanes, or all where there are more.
template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> value, float* to, std::size_t count) {
  if (count >= hn::Lanes(d)) {
    hn::StoreU(value, d, to);
  } else {
    hn::BlendedStore(value, hn::FirstN(d, count), d, to);
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
