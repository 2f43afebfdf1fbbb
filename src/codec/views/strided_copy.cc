#include "codec/views/strided_copy.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/views/strided_copy.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "quantizers/rows-inl.h"
#include "quantizers/stream.h"

HWY_BEFORE_NAMESPACE();
namespace shale::strided::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// Eight rows of eight elements of 16 bits, columns for rows: three steps of interleaving.
HWY_INLINE void transpose_8x8(const std::int16_t* from, std::size_t from_stride, std::int16_t* to,
                              std::size_t to_stride) {
  const Lanes8 d;
  using V = hn::Vec<Lanes8>;
  V rows[8], mixed[8];
  for (std::size_t i = 0; i < 8; ++i) rows[i] = hn::LoadU(d, from + i * from_stride);
  const auto interleave = [&](const V* in, V* out) HWY_ATTR {
    for (std::size_t i = 0; i < 4; ++i) {
      out[2 * i] = hn::InterleaveLower(d, in[i], in[i + 4]);
      out[2 * i + 1] = hn::InterleaveUpper(d, in[i], in[i + 4]);
    }
  };
  interleave(rows, mixed);
  interleave(mixed, rows);
  interleave(rows, mixed);
  for (std::size_t i = 0; i < 8; ++i) hn::StoreU(mixed[i], d, to + i * to_stride);
}

// to[c][r] = from[r][c]; strides in elements.
void transpose(const std::int16_t* from, std::size_t from_stride, std::int16_t* to, std::size_t to_stride,
               std::size_t rows, std::size_t columns) {
  const std::size_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  for (std::size_t c = 0; c < whole_columns; c += 8) {
    for (std::size_t r = 0; r < whole_rows; r += 8) {
      transpose_8x8(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

HWY_INLINE void store_saturated(hn::Vec<Floats> value, Half* to) {
  const Floats d;
  const auto largest = hn::Set(d, 65504.0f);
  store(d, hn::IfThenElse(hn::Gt(hn::Abs(value), largest), hn::CopySign(largest, value), value), to);
}

void halves_of_bf16(const std::uint16_t* from, std::size_t size, Half* to) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> wide;
  const hn::Rebind<std::uint16_t, Floats> narrow;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from + i)));
    store_saturated(hn::BitCast(d, bits), to + i);
  }
}

void halves_of_f32(const float* from, std::size_t size, Half* to) {
  const Floats d;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) store_saturated(hn::LoadU(d, from + i), to + i);
}

void bf16_of_halves(const Half* from, std::size_t size, std::uint16_t* to) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> wide;
  const hn::Rebind<std::uint16_t, Floats> narrow;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto value = load(d, from + i);
    const auto bits = hn::BitCast(wide, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
    const auto rounded = hn::Add(hn::Add(bits, odd), hn::Set(wide, 0x7fffu));
    const auto quiet = hn::Or(bits, hn::Set(wide, 0x400000u));
    const auto kept = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(value)), quiet, rounded);
    hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(kept)), narrow, to + i);
  }
}

void f32_of_halves(const Half* from, std::size_t size, float* to) {
  const Floats d;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) hn::StoreU(load(d, from + i), d, to + i);
}

}  // namespace shale::strided::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace strided {
HWY_EXPORT(transpose);
HWY_EXPORT(halves_of_bf16);
HWY_EXPORT(halves_of_f32);
HWY_EXPORT(bf16_of_halves);
HWY_EXPORT(f32_of_halves);
}  // namespace strided

namespace {

constexpr std::size_t kTileBytes = 16 << 10;

// Whether `outer` goes on where `inner` ends, in both layouts.
bool continues(const CopyDimension& inner, const CopyDimension& outer) {
  const auto extent = static_cast<std::int64_t>(inner.extent);
  return outer.from == inner.from * extent && outer.to == inner.to * extent;
}

// Dimensions of more than one, the nearest in `to` first, those that continue each other made one.
std::vector<CopyDimension> merged(std::span<const CopyDimension> dimensions, CopyDimension run) {
  std::vector<CopyDimension> sorted;
  for (const CopyDimension& each : dimensions) {
    if (each.extent != 1) sorted.push_back(each);
  }
  std::ranges::sort(sorted, {}, &CopyDimension::to);
  std::vector<CopyDimension> result = {run};
  for (const CopyDimension& each : sorted) {
    if (continues(result.back(), each)) {
      result.back().extent *= each.extent;
    } else {
      result.push_back(each);
    }
  }
  return result;
}

CopyDimension take(std::vector<CopyDimension>& from, std::vector<CopyDimension>::iterator which) {
  const CopyDimension taken = *which;
  from.erase(which);
  return taken;
}

void copy_runs(const std::byte* from, const CopyDimension& rows, std::byte* to, std::size_t bytes, bool stream) {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(to) | static_cast<std::uintptr_t>(rows.to) | bytes) % 16 == 0;
  if (stream && aligned && rows.from % 2 == 0) {
    return stream_rows(reinterpret_cast<const Half*>(from), static_cast<std::size_t>(rows.from) / sizeof(Half),
                       reinterpret_cast<Half*>(to), static_cast<std::size_t>(rows.to) / sizeof(Half), rows.extent,
                       bytes / sizeof(Half));
  }
  const auto copy_all = [&](auto size) {
    for (std::size_t i = 0; i < rows.extent; ++i, from += rows.from, to += rows.to) std::memcpy(to, from, size());
  };
  // The usual copies, of a size known to the compiler, are a few instructions.
  switch (bytes) {
    case 2:
      return copy_all([] { return 2; });
    case 4:
      return copy_all([] { return 4; });
    case 32:
      return copy_all([] { return 32; });
    default:
      return copy_all([bytes] { return bytes; });
  }
}

// to[c][r] = from[r][c], elements of four bytes.
void transpose_words(const std::byte* from, std::size_t from_stride, std::byte* to, std::size_t to_stride,
                     std::size_t rows, std::size_t columns) {
  constexpr std::size_t kTile = 16;
  for (std::size_t c = 0; c < columns; c += kTile) {
    const std::size_t end = std::min(columns, c + kTile);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = c; i < end; ++i) std::memcpy(to + i * to_stride + 4 * r, from + r * from_stride + 4 * i, 4);
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(std::span<const CopyDimension> dimensions, std::size_t element_bytes, CopyTo to) : to_(to) {
  for (const CopyDimension& each : dimensions) {
    if (each.extent == 0) return;
  }
  const auto element = static_cast<std::int64_t>(element_bytes);
  std::vector<CopyDimension> left = merged(dimensions, {element_bytes, 1, 1});
  run_bytes_ = take(left, left.begin()).extent;
  const auto column = std::ranges::find(left, element, &CopyDimension::from);
  const auto row = std::ranges::find(left, element, &CopyDimension::to);
  kernel_ = Kernel::kRuns;
  if (run_bytes_ == element_bytes && column != left.end() && row != left.end()) {
    kernel_ = Kernel::kTranspose;
    columns_ = *column;
    rows_ = *row;
    std::erase_if(left, [&](const CopyDimension& each) { return each.from == element || each.to == element; });
  } else if (!left.empty()) {
    rows_ = take(left, left.begin());
  }
  assert(left.size() <= outer_.size());
  std::ranges::copy(left, outer_.begin());
}

bool StridedCopy::join(const StridedCopy& other, std::int64_t from_after, std::int64_t to_after) {
  const auto run = static_cast<std::int64_t>(run_bytes_);
  if (kernel_ != Kernel::kRuns || other.kernel_ != kernel_ || other.run_bytes_ != run_bytes_ || other.rows_ != rows_ ||
      other.outer_ != outer_ || from_after != run || to_after != run) {
    return false;
  }
  run_bytes_ *= 2;
  widen();
  return true;
}

// Rows that follow each other without a gap become one.
void StridedCopy::widen() {
  const auto run = static_cast<std::int64_t>(run_bytes_);
  if (rows_.from != run || rows_.to != run) return;
  run_bytes_ *= rows_.extent;
  rows_ = outer_[0];
  std::shift_left(outer_.begin(), outer_.end(), 1);
  outer_.back() = {};
}

void StridedCopy::run_kernel(const std::byte* from, std::byte* to) const {
  if (kernel_ == Kernel::kRuns) return copy_runs(from, rows_, to, run_bytes_, to_ == CopyTo::kMemory);
  const auto from_stride = static_cast<std::size_t>(rows_.from), to_stride = static_cast<std::size_t>(columns_.to);
  if (run_bytes_ == 4) return transpose_words(from, from_stride, to, to_stride, rows_.extent, columns_.extent);
  assert(run_bytes_ == 2);
  const auto transpose = [&](std::byte* into, std::size_t into_stride) {
    HWY_DYNAMIC_DISPATCH(strided::transpose)
    (reinterpret_cast<const std::int16_t*>(from), from_stride / 2, reinterpret_cast<std::int16_t*>(into),
     into_stride / 2, rows_.extent, columns_.extent);
  };
  // Past the caches go whole rows: parts of many lines at a time would be written one by one.
  alignas(64) std::byte tile[kTileBytes];
  const std::size_t row_bytes = rows_.extent * 2;
  if (to_ == CopyTo::kCache || row_bytes * columns_.extent > kTileBytes) return transpose(to, to_stride);
  transpose(tile, row_bytes);
  copy_runs(tile, {columns_.extent, static_cast<std::int64_t>(row_bytes), columns_.to}, to, row_bytes, true);
}

void StridedCopy::run(const std::byte* from, std::byte* to) const {
  if (kernel_ == Kernel::kNothing) return;
  static_assert(kDimensions == 3);
  for (std::size_t i = 0; i < outer_[2].extent; ++i, from += outer_[2].from, to += outer_[2].to) {
    const std::byte* from_middle = from;
    std::byte* to_middle = to;
    for (std::size_t j = 0; j < outer_[1].extent; ++j, from_middle += outer_[1].from, to_middle += outer_[1].to) {
      const std::byte* from_inner = from_middle;
      std::byte* to_inner = to_middle;
      for (std::size_t k = 0; k < outer_[0].extent; ++k, from_inner += outer_[0].from, to_inner += outer_[0].to) {
        run_kernel(from_inner, to_inner);
      }
    }
  }
}

void halves_of_bf16(std::span<const std::uint16_t> from, Half* to) {
  assert(from.size() % 16 == 0);
  HWY_DYNAMIC_DISPATCH(strided::halves_of_bf16)(from.data(), from.size(), to);
}

void halves_of_f32(std::span<const float> from, Half* to) {
  assert(from.size() % 16 == 0);
  HWY_DYNAMIC_DISPATCH(strided::halves_of_f32)(from.data(), from.size(), to);
}

void bf16_of_halves(std::span<const Half> from, std::uint16_t* to) {
  assert(from.size() % 16 == 0);
  HWY_DYNAMIC_DISPATCH(strided::bf16_of_halves)(from.data(), from.size(), to);
}

void f32_of_halves(std::span<const Half> from, float* to) {
  assert(from.size() % 16 == 0);
  HWY_DYNAMIC_DISPATCH(strided::f32_of_halves)(from.data(), from.size(), to);
}

}  // namespace shale
#endif
