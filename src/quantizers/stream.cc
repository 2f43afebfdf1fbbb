#include "quantizers/stream.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/stream.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include <hwy/cache_control.h>

#include "core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::stream::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
void copy_lanes(D d, const std::uint16_t* from, std::size_t from_stride, std::uint16_t* to, std::size_t to_stride,
                std::size_t rows, std::size_t elements) {
  for (; rows > 0; --rows, from += from_stride, to += to_stride) {
    for (std::size_t i = 0; i < elements; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
}

// Vectors are as wide as rows are divisible by and aligned to.
void copy_rows(const std::uint16_t* from, std::size_t from_stride, std::uint16_t* to, std::size_t to_stride,
               std::size_t rows, std::size_t elements) {
  const std::size_t all = reinterpret_cast<std::uintptr_t>(to) / sizeof *to | to_stride | elements;
  if (all % 16 == 0) {
    copy_lanes(hn::CappedTag<std::uint16_t, 16>(), from, from_stride, to, to_stride, rows, elements);
  } else {
    copy_lanes(hn::CappedTag<std::uint16_t, 8>(), from, from_stride, to, to_stride, rows, elements);
  }
}

}  // namespace shale::stream::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace stream {
HWY_EXPORT(copy_rows);
}

void stream_rows(const Half* from, std::size_t from_stride, Half* to, std::size_t to_stride, std::size_t rows,
                 std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(stream::copy_rows)
  (reinterpret_cast<const std::uint16_t*>(from), from_stride, reinterpret_cast<std::uint16_t*>(to), to_stride, rows,
   elements);
}

void flush_stream() { hwy::FlushStream(); }

}  // namespace shale
#endif
