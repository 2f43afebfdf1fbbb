// The codes of kivi4 and kivi2: rows of 32 elements that share a minimum and a scale. A row is a key channel over a
// block's tokens, or 32 channels of one token's value.
#if defined(SHALE_CODEC_KIVI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CODEC_KIVI_INL_H_
#undef SHALE_CODEC_KIVI_INL_H_
#else
#define SHALE_CODEC_KIVI_INL_H_
#endif

#include <algorithm>

#include "quantizers/quantizer.h"
#include "quantizers/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

inline constexpr std::size_t kRow = 32;  // elements

// Folds a vector to eight lanes.
template <class D, class Op>
HWY_INLINE hn::Vec<Lanes8> fold_to_eight(D d, hn::Vec<D> v, const Op& op) {
  if constexpr (hn::MaxLanes(d) == 8) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_to_eight(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

// Minima and maxima of eight rows.
HWY_INLINE void row_ranges(const Half* HWY_RESTRICT rows, std::size_t stride, Half* HWY_RESTRICT minima,
                           Half* HWY_RESTRICT maxima) {
  const Lanes8 d;
  const hn::CappedTag<std::int16_t, kRow> wide;
  const auto min = [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); };
  const auto max = [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); };
  HWY_ALIGN std::int16_t low[8 * 8], high[8 * 8];
  for (std::size_t r = 0; r < 8; ++r) {
    const auto* row = reinterpret_cast<const std::int16_t*>(rows + r * stride);
    auto least = ordered(wide, hn::LoadU(wide, row)), most = least;
    for (std::size_t i = hn::Lanes(wide); i < kRow; i += hn::Lanes(wide)) {
      const auto next = ordered(wide, hn::LoadU(wide, row + i));
      least = hn::Min(least, next);
      most = hn::Max(most, next);
    }
    hn::Store(fold_to_eight(wide, least, min), d, low + 8 * r);
    hn::Store(fold_to_eight(wide, most, max), d, high + 8 * r);
  }
  const auto minimum = reduce_rows(low, min);
  const auto maximum = reduce_rows(high, max);
  hn::StoreU(ordered(d, minimum), d, reinterpret_cast<std::int16_t*>(minima));
  hn::StoreU(ordered(d, maximum), d, reinterpret_cast<std::int16_t*>(maxima));
}

// Packs codes, a lane each, least significant bits first: neighbours are merged until they fill a byte.
template <int kBits>
HWY_INLINE void pack_codes(hn::Vec<hn::RebindToUnsigned<Floats>> codes, std::uint8_t* HWY_RESTRICT out) {
  const hn::Repartition<std::uint64_t, Floats> d64;
  const hn::Rebind<std::uint8_t, decltype(d64)> d8;
  const auto pairs = hn::BitCast(d64, codes);
  const auto merged = hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<32 - kBits>(pairs)));
  if constexpr (kBits == 4) {
    hn::StoreU(merged, d8, out);
  } else {
    const hn::Repartition<std::uint16_t, decltype(d8)> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> bytes;
    const auto fours = hn::BitCast(d16, merged);
    hn::StoreU(hn::TruncateTo(bytes, hn::Or(fours, hn::ShiftRight<4>(fours))), bytes, out);
  }
}

template <int kBits>
HWY_INLINE void unpack_row(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT codes) {
  const hn::FixedTag<std::uint8_t, 16> d;
  if constexpr (kBits == 4) {
    const auto packed = hn::LoadU(d, in);
    const auto even = hn::And(packed, hn::Set(d, std::uint8_t{15})), odd = hn::ShiftRight<4>(packed);
    hn::Store(hn::InterleaveLower(d, even, odd), d, codes);
    hn::Store(hn::InterleaveUpper(d, even, odd), d, codes + 16);
  } else {
    const hn::FixedTag<std::uint8_t, 8> half;
    const hn::FixedTag<std::uint16_t, 8> pairs;
    const auto mask = hn::Set(pairs, std::uint16_t{0x0303});
    const auto packed = hn::PromoteTo(pairs, hn::LoadU(half, in));  // a byte's four codes in each lane
    const auto first = hn::And(hn::Or(packed, hn::ShiftLeft<6>(packed)), mask);
    const auto shifted = hn::ShiftRight<4>(packed);
    const auto second = hn::And(hn::Or(shifted, hn::ShiftLeft<6>(shifted)), mask);
    hn::Store(hn::InterleaveLower(pairs, first, second), pairs, reinterpret_cast<std::uint16_t*>(codes));
    hn::Store(hn::InterleaveUpper(pairs, first, second), pairs, reinterpret_cast<std::uint16_t*>(codes + 16));
  }
}

// Encodes `rows` rows (a multiple of 8), `stride` elements apart, and asks for as many lines from `ahead` on.
template <int kBits>
void encode_rows(const Half* from, std::size_t stride, std::size_t rows, Half* minima, Half* scales,
                 std::uint8_t* codes, const std::byte* ahead) {
  constexpr float kLevels = (1 << kBits) - 1;
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::CappedTag<float, 8> d8;
  Half maxima[8];
  HWY_ALIGN float minimum[8], inverse[8];
  for (std::size_t r = 0; r < rows; r += 8, from += 8 * stride, minima += 8, scales += 8) {
    row_ranges(from, stride, minima, maxima);
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d8)) {
      const auto low = load(d8, minima + i);
      const auto exact = hn::Mul(hn::Sub(load(d8, maxima + i), low), hn::Set(d8, 1 / kLevels));
      store(d8, stored_scale(d8, exact, kLevels, low), scales + i);
      hn::Store(low, d8, minimum + i);
      hn::Store(inverse_scale(d8, load(d8, scales + i)), d8, inverse + i);
    }
    for (std::size_t i = 0; i < 8; ++i, codes += kRow * kBits / 8, ahead += 64) {
      prefetch(ahead);
      const auto low = hn::Set(d, minimum[i]), factor = hn::Set(d, inverse[i]);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        // Adding 2^23 rounds to an integer and leaves it in the lowest bits.
        const auto steps = hn::MulAdd(hn::Sub(load(d, from + i * stride + j), low), factor, hn::Set(d, 0x1p23f));
        const auto code = hn::BitCast(words, hn::Min(steps, hn::Set(d, 0x1p23f + kLevels)));
        pack_codes<kBits>(hn::And(code, hn::Set(words, (1u << kBits) - 1)), codes + j * kBits / 8);
      }
    }
  }
}

// The reverse, into rows `stride` elements apart.
template <int kBits>
void decode_rows(const Half* minima, const Half* scales, const std::uint8_t* codes, Half* to, std::size_t stride,
                 std::size_t rows) {
  const Floats d;
  const hn::CappedTag<float, 8> d8;
  const hn::Rebind<std::uint8_t, Floats> bytes;
  const hn::Rebind<std::int32_t, Floats> integers;
  HWY_ALIGN float minimum[8], scale[8];
  HWY_ALIGN std::uint8_t row_codes[kRow];
  for (std::size_t r = 0; r < rows; r += 8, minima += 8, scales += 8) {
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d8)) {
      hn::Store(load(d8, minima + i), d8, minimum + i);
      hn::Store(load(d8, scales + i), d8, scale + i);
    }
    for (std::size_t i = 0; i < 8; ++i, codes += kRow * kBits / 8, to += stride) {
      const auto low = hn::Set(d, minimum[i]), step = hn::Set(d, scale[i]);
      unpack_row<kBits>(codes, row_codes);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        const auto code = hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(bytes, row_codes + j)));
        store(d, hn::MulAdd(code, step, low), to + j);
      }
    }
  }
}

// Where the planes of a full block begin. Keys and values have head_dim rows each.
template <int kBits>
struct KiviBlock {
  KiviBlock(std::byte* bytes, std::size_t rows)
      : key_minima(reinterpret_cast<Half*>(bytes)),
        key_scales(key_minima + rows),
        value_minima(key_scales + rows),
        value_scales(value_minima + rows),
        keys(reinterpret_cast<std::uint8_t*>(value_scales + rows)),
        values(keys + rows * kRow * kBits / 8) {}
  Half *key_minima, *key_scales, *value_minima, *value_scales;
  std::uint8_t *keys, *values;
};

template <int kBits>
void encode_kivi(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  const KiviBlock<kBits> block(out, rows.head_dim);
  encode_rows<kBits>(rows.keys, rows.key_stride, rows.head_dim, block.key_minima, block.key_scales, block.keys,
                     ahead.first);
  encode_rows<kBits>(rows.values, kRow, rows.head_dim, block.value_minima, block.value_scales, block.values,
                     ahead.second);
}

template <int kBits>
void decode_kivi(const std::byte* in, const KvRows<Half>& rows) {
  const KiviBlock<kBits> block(const_cast<std::byte*>(in), rows.head_dim);
  decode_rows<kBits>(block.key_minima, block.key_scales, block.keys, rows.keys, rows.key_stride, rows.head_dim);
  decode_rows<kBits>(block.value_minima, block.value_scales, block.values, rows.values, kRow, rows.head_dim);
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
