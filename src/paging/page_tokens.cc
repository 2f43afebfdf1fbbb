#include "paging/page_tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "paging/page_tokens.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// Head dimensions are multiples of 8.
using Eight = HWY_CAPPED(float, 8);

// Keys are transposed on the way: a row of the page is one channel of consecutive tokens.
void write_halves(const PageShape& shape, std::byte* bytes, std::uint32_t slot, std::uint32_t count,
                  const TokenRows& rows) {
  const Eight d;
  const std::size_t lanes = hn::Lanes(d);
  const auto page = MutablePageView::of(bytes, shape);
  const auto indices = hn::Mul(hn::Iota(hn::RebindToSigned<Eight>(), 0),
                               hn::Set(hn::RebindToSigned<Eight>(), static_cast<std::int32_t>(rows.stride)));
  for (std::size_t c = 0; c < shape.head_dim; ++c) {
    Half* to = page.keys + c * shape.block_size + slot;
    std::size_t t = 0;
    for (; t + lanes <= count; t += lanes)
      store(d, hn::GatherIndex(d, rows.keys + t * rows.stride + c, indices), to + t);
    for (; t < count; ++t) to[t] = to_half(rows.keys[t * rows.stride + c]);
  }
  for (std::size_t t = 0; t < count; ++t) {
    Half* to = page.values + (slot + t) * shape.head_dim;
    for (std::size_t c = 0; c < shape.head_dim; c += lanes)
      store(d, hn::LoadU(d, rows.values + t * rows.stride + c), to + c);
  }
}

// The codes of one group of numbers; returns its scale.
HWY_INLINE Half quantize_group(const float* from, std::size_t count, std::int8_t* codes) {
  const Eight d;
  const hn::RebindToSigned<Eight> di;
  const hn::Rebind<std::int8_t, Eight> code;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(di);  // magnitudes compare as their bits do, and NaN is above infinity
  for (std::size_t c = 0; c < count; c += lanes)
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, from + c))));
  const Half scale = to_half(std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest))) / 127);
  const float step = to_float(scale);
  if (step == 0 || !std::isfinite(step)) {
    std::fill_n(codes, count, std::int8_t{0});
    return scale;
  }
  const auto inverse = hn::Set(d, 1 / step);
  const auto most = hn::Set(d, 127.0f), least = hn::Set(d, -127.0f);  // a scale rounded down
  for (std::size_t c = 0; c < count; c += lanes) {
    const auto steps = hn::Clamp(hn::Mul(hn::LoadU(d, from + c), inverse), least, most);
    hn::StoreU(hn::DemoteTo(code, hn::NearestInt(steps)), code, codes + c);
  }
  return scale;
}

void write_int8(const PageShape& shape, std::byte* bytes, std::uint32_t slot, std::uint32_t count,
                const TokenRows& rows) {
  const auto page = MutableInt8PageView::of(bytes, shape);
  for (std::size_t t = 0; t < count; ++t) {
    const float* keys = rows.keys + t * rows.stride;
    const float* values = rows.values + t * rows.stride;
    for (std::size_t first = 0; first < shape.head_dim; first += kScaleChannels) {
      const std::size_t channels = std::min<std::size_t>(kScaleChannels, shape.head_dim - first);
      const std::size_t scale = first / kScaleChannels * shape.block_size + slot + t;
      std::int8_t codes[kScaleChannels];
      page.key_scales[scale] = quantize_group(keys + first, channels, codes);
      for (std::size_t c = 0; c < channels; ++c) page.keys[(first + c) * shape.block_size + slot + t] = codes[c];
      page.value_scales[scale] =
          quantize_group(values + first, channels, page.values + (slot + t) * shape.head_dim + first);
    }
  }
}

void read_int8(const PageShape& shape, const std::byte* bytes, std::uint32_t slot, std::uint32_t count, Half* keys,
               std::size_t key_stride, Half* values) {
  const Eight d;
  const std::size_t lanes = hn::Lanes(d);
  const auto page = Int8PageView::of(bytes, shape);
  for (std::size_t c = 0; c < shape.head_dim; ++c) {
    const std::int8_t* from = page.keys + c * shape.block_size + slot;
    const Half* scales = page.key_scales + c / kScaleChannels * shape.block_size + slot;
    Half* to = keys + c * key_stride;
    std::size_t t = 0;
    for (; t + lanes <= count; t += lanes) store(d, hn::Mul(load(d, from + t), load(d, scales + t)), to + t);
    for (; t < count; ++t) to[t] = to_half(static_cast<float>(from[t]) * to_float(scales[t]));
  }
  for (std::size_t t = 0; t < count; ++t) {
    const std::int8_t* from = page.values + (slot + t) * shape.head_dim;
    Half* to = values + t * shape.head_dim;
    for (std::size_t first = 0; first < shape.head_dim; first += kScaleChannels) {
      const std::size_t end = std::min<std::size_t>(first + kScaleChannels, shape.head_dim);
      const auto scale = hn::Set(d, to_float(page.value_scales[first / kScaleChannels * shape.block_size + slot + t]));
      for (std::size_t c = first; c < end; c += lanes) store(d, hn::Mul(load(d, from + c), scale), to + c);
    }
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace {

HWY_EXPORT(write_halves);
HWY_EXPORT(write_int8);
HWY_EXPORT(read_int8);

// [rows] rows of `count` elements, from_stride and to_stride elements apart.
template <class T>
void copy_rows(const T* from, std::size_t from_stride, T* to, std::size_t to_stride, std::size_t rows,
               std::size_t count) {
  for (std::size_t row = 0; row < rows; ++row)
    std::memmove(to + row * to_stride, from + row * from_stride, count * sizeof(T));
}

}  // namespace

void copy_tokens(const PageShape& shape, std::span<const std::byte> from, std::uint32_t from_slot,
                 std::span<std::byte> to, std::uint32_t to_slot, std::uint32_t count) {
  for (const PagePlane& plane : shape.planes()) {
    copy_rows(from.data() + plane.offset + from_slot * plane.token_bytes, plane.stride,
              to.data() + plane.offset + to_slot * plane.token_bytes, plane.stride, plane.rows,
              count * plane.token_bytes);
  }
}

void write_tokens(const PageShape& shape, std::span<std::byte> page, std::uint32_t slot, std::uint32_t count,
                  const TokenRows& rows) {
  shape.element == PageElement::kHalf ? HWY_DYNAMIC_DISPATCH(write_halves)(shape, page.data(), slot, count, rows)
                                      : HWY_DYNAMIC_DISPATCH(write_int8)(shape, page.data(), slot, count, rows);
}

void write_tokens(const PageShape& shape, std::span<std::byte> page, std::uint32_t slot, std::uint32_t count,
                  const Half* keys, std::size_t key_stride, const Half* values) {
  const std::size_t d = shape.head_dim;
  if (shape.element == PageElement::kHalf) {
    const auto to = MutablePageView::of(page.data(), shape);
    copy_rows(keys, key_stride, to.keys + slot, shape.block_size, d, count);
    copy_rows(values, 0, to.values + slot * d, 0, 1, count * d);
    return;
  }
  std::vector<float> rows(2 * d * count);
  for (std::size_t t = 0; t < count; ++t) {
    for (std::size_t c = 0; c < d; ++c) rows[t * d + c] = to_float(keys[c * key_stride + t]);
  }
  to_float({values, d * count}, std::span(rows).subspan(d * count));
  write_tokens(shape, page, slot, count, {rows.data(), rows.data() + d * count, d});
}

void read_tokens(const PageShape& shape, std::span<const std::byte> page, std::uint32_t slot, std::uint32_t count,
                 Half* keys, std::size_t key_stride, Half* values) {
  const std::size_t d = shape.head_dim;
  if (shape.element == PageElement::kInt8) {
    HWY_DYNAMIC_DISPATCH(read_int8)(shape, page.data(), slot, count, keys, key_stride, values);
    return;
  }
  const auto from = PageView::of(page.data(), shape);
  copy_rows(from.keys + slot, shape.block_size, keys, key_stride, d, count);
  copy_rows(from.values + slot * d, 0, values, 0, 1, count * d);
}

PageView as_halves(const PageShape& shape, std::span<const std::byte> page, std::uint32_t count,
                   std::span<Half> memory) {
  if (shape.element == PageElement::kHalf) return PageView::of(page.data(), shape);
  Half* values = memory.data() + shape.key_elements();
  read_tokens(shape, page, 0, count, memory.data(), shape.block_size, values);
  return {memory.data(), values};
}

}  // namespace shale
#endif
