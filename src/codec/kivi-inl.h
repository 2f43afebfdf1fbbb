// The codes of kivi4 and kivi2: rows of 32 elements that share a minimum and a scale. A row is a key channel over a
// block's tokens, or 32 channels of one token's value.
#if defined(SHALE_CODEC_KIVI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CODEC_KIVI_INL_H_
#undef SHALE_CODEC_KIVI_INL_H_
#else
#define SHALE_CODEC_KIVI_INL_H_
#endif

#include <algorithm>

#include "codec/quantizer.h"
#include "codec/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

inline constexpr std::size_t kRow = 32;  // elements

// Minima and maxima of eight rows.
HWY_INLINE void row_ranges(const Half* HWY_RESTRICT rows, std::size_t stride, Half* HWY_RESTRICT minima,
                           Half* HWY_RESTRICT maxima) {
  const Lanes8 d;
  HWY_ALIGN std::int16_t low[8 * 8], high[8 * 8];
  for (std::size_t r = 0; r < 8; ++r) {
    const Half* row = rows + r * stride;
    const auto v0 = ordered(load_bits(row)), v1 = ordered(load_bits(row + 8));
    const auto v2 = ordered(load_bits(row + 16)), v3 = ordered(load_bits(row + 24));
    hn::Store(hn::Min(hn::Min(v0, v1), hn::Min(v2, v3)), d, low + 8 * r);
    hn::Store(hn::Max(hn::Max(v0, v1), hn::Max(v2, v3)), d, high + 8 * r);
  }
  const auto minimum = reduce_rows(low, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
  const auto maximum = reduce_rows(high, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
  hn::StoreU(ordered(minimum), d, reinterpret_cast<std::int16_t*>(minima));
  hn::StoreU(ordered(maximum), d, reinterpret_cast<std::int16_t*>(maxima));
}

// Packs a row of codes, a byte each, least significant bits first.
template <int kBits>
HWY_INLINE void pack_row(const std::uint8_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT out) {
  if constexpr (kBits == 4) {
    const hn::FixedTag<std::int16_t, 8> d;
    const hn::FixedTag<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < kRow / 16; ++i) {
      const auto pairs = hn::Load(d, reinterpret_cast<const std::int16_t*>(codes + 16 * i));
      const auto merged = hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d, 0xff));
      hn::StoreU(hn::DemoteTo(bytes, merged), bytes, out + 8 * i);
    }
  } else {
    const hn::FixedTag<std::int32_t, 4> d;
    const hn::FixedTag<std::uint8_t, 4> bytes;
    for (std::size_t i = 0; i < kRow / 16; ++i) {
      const auto fours = hn::Load(d, reinterpret_cast<const std::int32_t*>(codes + 16 * i));
      const auto pairs = hn::Or(fours, hn::ShiftRight<6>(fours));
      const auto merged = hn::And(hn::Or(pairs, hn::ShiftRight<12>(pairs)), hn::Set(d, 0xff));
      hn::StoreU(hn::DemoteTo(bytes, merged), bytes, out + 4 * i);
    }
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

// Encodes `rows` rows (a multiple of 8), `stride` elements apart.
template <int kBits>
void encode_rows(const Half* from, std::size_t stride, std::size_t rows, Half* minima, Half* scales,
                 std::uint8_t* codes) {
  constexpr float kLevels = (1 << kBits) - 1;
  const Floats d;
  const hn::Rebind<std::uint8_t, Floats> bytes;
  Half maxima[16] = {};
  HWY_ALIGN float minimum[16], inverse[16];
  HWY_ALIGN std::uint8_t row_codes[kRow];
  for (std::size_t r = 0; r < rows; r += 8, from += 8 * stride, minima += 8, scales += 8) {
    Half padded_minima[16] = {}, padded_scales[16];
    row_ranges(from, stride, padded_minima, maxima);
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d)) {
      const auto low = load(d, padded_minima + i);
      const auto exact = hn::Mul(hn::Sub(load(d, maxima + i), low), hn::Set(d, 1 / kLevels));
      store(d, stored_scale(exact, kLevels, low), padded_scales + i);
      hn::Store(low, d, minimum + i);
      hn::Store(inverse_scale(load(d, padded_scales + i)), d, inverse + i);
    }
    std::copy_n(padded_minima, 8, minima);
    std::copy_n(padded_scales, 8, scales);
    for (std::size_t i = 0; i < 8; ++i, codes += kRow * kBits / 8) {
      const auto low = hn::Set(d, minimum[i]), factor = hn::Set(d, inverse[i]);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        const auto steps = hn::MulAdd(hn::Sub(load(d, from + i * stride + j), low), factor, hn::Set(d, 0.5f));
        const auto code = hn::ConvertTo(hn::RebindToSigned<Floats>(), hn::Min(steps, hn::Set(d, kLevels)));
        hn::StoreU(hn::DemoteTo(bytes, code), bytes, row_codes + j);
      }
      pack_row<kBits>(row_codes, codes);
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
void encode_kivi(const KvRows<const Half>& rows, std::byte* out) {
  const KiviBlock<kBits> block(out, rows.head_dim);
  encode_rows<kBits>(rows.keys, rows.key_stride, rows.head_dim, block.key_minima, block.key_scales, block.keys);
  encode_rows<kBits>(rows.values, kRow, rows.head_dim, block.value_minima, block.value_scales, block.values);
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
