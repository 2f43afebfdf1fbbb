// The codes of layered and layered2: rows of 32 elements, as kivi's, in 16 equal cells between the row's minimum and
// maximum. The upper two bits of a cell's number are coarse codes of their own; the lower two refine them.
#if defined(SHALE_CODEC_LAYERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CODEC_LAYERED_INL_H_
#undef SHALE_CODEC_LAYERED_INL_H_
#else
#define SHALE_CODEC_LAYERED_INL_H_
#endif

#include "quantizers/kivi-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// Encodes `rows` rows (a multiple of 8), `stride` elements apart, and asks for as many lines from `ahead` on. `fine`
// may be null.
inline void encode_cells(const Half* from, std::size_t stride, std::size_t rows, Half* minima, Half* scales,
                         std::uint8_t* coarse, std::uint8_t* fine, const std::byte* ahead) {
  constexpr float kHighestCentre = 15.5f;
  constexpr std::size_t kRowBytes = kRow * 2 / 8;
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::CappedTag<float, 8> d8;
  Half maxima[8];
  HWY_ALIGN float minimum[8], inverse[8];
  for (std::size_t r = 0; r < rows; r += 8, from += 8 * stride, minima += 8, scales += 8) {
    row_ranges(from, stride, minima, maxima);
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d8)) {
      const auto low = load(d8, minima + i);
      const auto exact = hn::Mul(hn::Sub(load(d8, maxima + i), low), hn::Set(d8, 1.0f / 16));
      store(d8, stored_scale(d8, exact, kHighestCentre, low), scales + i);
      hn::Store(low, d8, minimum + i);
      hn::Store(inverse_scale(d8, load(d8, scales + i)), d8, inverse + i);
    }
    for (std::size_t i = 0; i < 8; ++i, coarse += kRowBytes, ahead += 64) {
      prefetch(ahead);
      const auto low = hn::Set(d, minimum[i]), factor = hn::Set(d, inverse[i]);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        // The cell's number, rounded down: adding 2^23 rounds to an integer and leaves it in the lowest bits.
        const auto steps = hn::MulAdd(hn::Sub(load(d, from + i * stride + j), low), factor, hn::Set(d, 0x1p23f - 0.5f));
        const auto cell = hn::Min(hn::Max(steps, hn::Set(d, 0x1p23f)), hn::Set(d, 0x1p23f + 15));
        const auto code = hn::And(hn::BitCast(words, cell), hn::Set(words, 15u));
        pack_codes<2>(hn::ShiftRight<2>(code), coarse + j / 4);
        if (fine) pack_codes<2>(hn::And(code, hn::Set(words, 3u)), fine + j / 4);
      }
      if (fine) fine += kRowBytes;
    }
  }
}

// A row of cells' numbers from their upper and their lower two bits.
HWY_INLINE void unpack_nested(const std::uint8_t* HWY_RESTRICT coarse, const std::uint8_t* HWY_RESTRICT fine,
                              std::uint8_t* HWY_RESTRICT codes) {
  const hn::FixedTag<std::uint8_t, 8> half;
  const hn::FixedTag<std::uint16_t, 8> pairs;
  const auto mask = hn::Set(pairs, std::uint16_t{0x0303});
  // Spreads codes 0 and 1, or 2 and 3, of the byte in each lane to its two bytes.
  const auto first_two = [&](hn::Vec<decltype(pairs)> packed)
                             HWY_ATTR { return hn::And(hn::Or(packed, hn::ShiftLeft<6>(packed)), mask); };
  const auto high = hn::PromoteTo(pairs, hn::LoadU(half, coarse)), low = hn::PromoteTo(pairs, hn::LoadU(half, fine));
  const auto first = hn::Or(hn::ShiftLeft<2>(first_two(high)), first_two(low));
  const auto second = hn::Or(hn::ShiftLeft<2>(first_two(hn::ShiftRight<4>(high))), first_two(hn::ShiftRight<4>(low)));
  hn::Store(hn::InterleaveLower(pairs, first, second), pairs, reinterpret_cast<std::uint16_t*>(codes));
  hn::Store(hn::InterleaveUpper(pairs, first, second), pairs, reinterpret_cast<std::uint16_t*>(codes + 16));
}

// The reverse, to the centres of cells, or of what four cells span where `fine` is null.
inline void decode_cells(const Half* minima, const Half* scales, const std::uint8_t* coarse, const std::uint8_t* fine,
                         Half* to, std::size_t stride, std::size_t rows) {
  constexpr std::size_t kRowBytes = kRow * 2 / 8;
  const Floats d;
  const hn::CappedTag<float, 8> d8;
  const hn::Rebind<std::uint8_t, Floats> bytes;
  const hn::Rebind<std::int32_t, Floats> integers;
  const float width = fine ? 1.0f : 4.0f;
  HWY_ALIGN float minimum[8], scale[8];
  HWY_ALIGN std::uint8_t codes[kRow];
  for (std::size_t r = 0; r < rows; r += 8, minima += 8, scales += 8) {
    for (std::size_t i = 0; i < 8; i += hn::Lanes(d8)) {
      const auto step = hn::Mul(load(d8, scales + i), hn::Set(d8, width));
      hn::Store(hn::MulAdd(step, hn::Set(d8, 0.5f), load(d8, minima + i)), d8, minimum + i);
      hn::Store(step, d8, scale + i);
    }
    for (std::size_t i = 0; i < 8; ++i, coarse += kRowBytes, to += stride) {
      const auto low = hn::Set(d, minimum[i]), step = hn::Set(d, scale[i]);
      if (fine) {
        unpack_nested(coarse, fine, codes);
        fine += kRowBytes;
      } else {
        unpack_row<2>(coarse, codes);
      }
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        const auto code = hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(bytes, codes + j)));
        store(d, hn::MulAdd(code, step, low), to + j);
      }
    }
  }
}

// Where the planes of a full block begin, keys and values with head_dim rows each; null where there is no refinement.
struct LayeredBlock {
  LayeredBlock(std::byte* base, std::byte* refinement, std::size_t rows)
      : head(base, rows), key_fine(reinterpret_cast<std::uint8_t*>(refinement)) {
    value_fine = key_fine ? key_fine + rows * kRow * 2 / 8 : nullptr;
  }
  KiviBlock<2> head;  // minima, scales and coarse codes
  std::uint8_t *key_fine, *value_fine;
};

inline void encode_layered(const KvRows<const Half>& rows, std::byte* base, std::byte* refinement, const Ahead& ahead) {
  const LayeredBlock block(base, refinement, rows.head_dim);
  encode_cells(rows.keys, rows.key_stride, rows.head_dim, block.head.key_minima, block.head.key_scales, block.head.keys,
               block.key_fine, ahead.first);
  encode_cells(rows.values, kRow, rows.head_dim, block.head.value_minima, block.head.value_scales, block.head.values,
               block.value_fine, ahead.second);
}

inline void decode_layered(const std::byte* base, const std::byte* refinement, const KvRows<Half>& rows) {
  const LayeredBlock block(const_cast<std::byte*>(base), const_cast<std::byte*>(refinement), rows.head_dim);
  decode_cells(block.head.key_minima, block.head.key_scales, block.head.keys, block.key_fine, rows.keys,
               rows.key_stride, rows.head_dim);
  decode_cells(block.head.value_minima, block.head.value_scales, block.head.values, block.value_fine, rows.values, kRow,
               rows.head_dim);
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
