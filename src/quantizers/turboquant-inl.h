// The kernels of turboquant2, turboquant3 and turboquant4. Rows of 32 coordinates, as kivi's: a channel over a block's
// tokens, or 32 channels of one token's value.
#if defined(SHALE_CODEC_TURBOQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_CODEC_TURBOQUANT_INL_H_
#undef SHALE_CODEC_TURBOQUANT_INL_H_
#else
#define SHALE_CODEC_TURBOQUANT_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "quantizers/kivi-inl.h"
#include "quantizers/turboquant.h"

HWY_BEFORE_NAMESPACE();
namespace shale::HWY_NAMESPACE {

// kRadix points, `stride` floats apart, transformed in registers, for `width` floats side by side.
template <std::size_t kRadix, class D>
HWY_INLINE void butterflies(D d, float* HWY_RESTRICT at, std::size_t stride, std::size_t width) {
  for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
    hn::Vec<D> x[kRadix];
    for (std::size_t r = 0; r < kRadix; ++r) x[r] = hn::Load(d, at + r * stride + i);
    for (std::size_t h = 1; h < kRadix; h *= 2) {
      for (std::size_t r = 0; r < kRadix; ++r) {
        if (r & h) continue;
        const auto a = x[r], b = x[r + h];
        x[r] = hn::Add(a, b);
        x[r + h] = hn::Sub(a, b);
      }
    }
    for (std::size_t r = 0; r < kRadix; ++r) hn::Store(x[r], d, at + r * stride + i);
  }
}

// The Walsh–Hadamard transform, unscaled, of `points` (a power of two) rows of `width` floats, across the rows.
template <class D>
void hadamard(D d, float* HWY_RESTRICT rows, std::size_t points, std::size_t width) {
  for (std::size_t h = 1; h < points;) {
    const std::size_t radix = std::min<std::size_t>(8, points / h);
    for (std::size_t first = 0; first < points; first += h * radix) {
      for (std::size_t i = first; i < first + h; ++i) {
        float* at = rows + i * width;
        if (radix == 8) {
          butterflies<8>(d, at, h * width, width);
        } else if (radix == 4) {
          butterflies<4>(d, at, h * width, width);
        } else {
          butterflies<2>(d, at, h * width, width);
        }
      }
    }
    h *= radix;
  }
}

// The same of one vector whose points lie side by side: first within registers, then across them.
inline void hadamard_row(float* HWY_RESTRICT row, std::size_t points) {
  HWY_ALIGN static constexpr float kAlternate[3][8] = {
      {1, -1, 1, -1, 1, -1, 1, -1}, {1, 1, -1, -1, 1, 1, -1, -1}, {1, 1, 1, 1, -1, -1, -1, -1}};
  const hn::CappedTag<float, 8> d;
  const auto one = hn::Load(d, kAlternate[0]), two = hn::Load(d, kAlternate[1]);
  for (std::size_t i = 0; i < points; i += hn::Lanes(d)) {
    auto x = hn::Load(d, row + i);
    x = hn::MulAdd(x, one, hn::Shuffle2301(x));
    x = hn::MulAdd(x, two, hn::Shuffle1032(x));
    if constexpr (hn::MaxLanes(d) == 8) x = hn::MulAdd(x, hn::Load(d, kAlternate[2]), hn::ConcatLowerUpper(d, x, x));
    hn::Store(x, d, row + i);
  }
  hadamard(d, row, points / hn::Lanes(d), hn::Lanes(d));
}

// Bytes of 0 or 1, eight of them, to the bits of a byte, and back.
inline std::uint8_t gather_bits(const std::uint8_t* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return static_cast<std::uint8_t>(word * 0x0102040810204080 >> 56);
}
inline std::uint64_t scatter_bits(std::uint8_t bits) {
  const std::uint64_t marked = bits * std::uint64_t{0x0101010101010101} & 0x8040201008040201;
  return (marked + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
}

// Codes of 32 coordinates times `factors`: the number of the nearest magnitude, and above it the sign.
template <int kBits>
HWY_INLINE void encode_coordinates(const float* HWY_RESTRICT from, const float* HWY_RESTRICT factors,
                                   std::uint8_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT signs) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<std::uint8_t, Floats> bytes;
  HWY_ALIGN std::uint8_t sign_bytes[kRow];
  for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
    const auto x = hn::Mul(hn::Load(d, from + j), hn::Load(d, factors + j));
    const auto magnitude = hn::Abs(x);
    auto code = hn::Zero(words);
    for (std::size_t k = 1; k < kMagnitudes<kBits>.size(); ++k) {
      const float between = static_cast<float>(kMagnitudes<kBits>[k - 1] + kMagnitudes<kBits>[k]) * kLevelUnit / 2;
      code = hn::Sub(code, hn::BitCast(words, hn::VecFromMask(d, hn::Gt(magnitude, hn::Set(d, between)))));
    }
    const auto sign = hn::ShiftRight<31>(hn::BitCast(words, x));
    if constexpr (kBits == 3) {
      pack_codes<2>(code, codes + j / 4);
      hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(hn::RebindToSigned<decltype(words)>(), sign)), bytes, sign_bytes + j);
    } else {
      pack_codes<kBits>(hn::Or(code, hn::ShiftLeft<kBits - 1>(sign)), codes + j * kBits / 8);
    }
  }
  if constexpr (kBits == 3) {
    for (std::size_t i = 0; i < kRow / 8; ++i) signs[i] = gather_bits(sign_bytes + 8 * i);
  }
}

// The bytes of what each code stands for: the low ones, then the high ones.
template <int kBits>
inline constexpr auto kLevelBytes = [] {
  std::array<std::uint8_t, 32> bytes{};
  for (std::size_t code = 0; code < std::size_t{1} << kBits; ++code) {
    const std::int16_t magnitude = kMagnitudes<kBits>[code % kMagnitudes<kBits>.size()];
    const auto level = static_cast<std::uint16_t>(code < kMagnitudes<kBits>.size() ? magnitude : -magnitude);
    bytes[code] = static_cast<std::uint8_t>(level & 0xff);
    bytes[16 + code] = static_cast<std::uint8_t>(level >> 8);
  }
  return bytes;
}();

// The reverse.
template <int kBits>
HWY_INLINE void decode_coordinates(const std::uint8_t* HWY_RESTRICT codes, const std::uint8_t* HWY_RESTRICT signs,
                                   const float* HWY_RESTRICT factors, float* HWY_RESTRICT to) {
  const Floats d;
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::Rebind<std::int16_t, Floats> shorts;
  const hn::Rebind<std::int32_t, Floats> integers;
  HWY_ALIGN std::uint8_t unpacked[kRow];
  HWY_ALIGN std::int16_t levels[kRow];
  unpack_row<kBits == 3 ? 2 : kBits>(codes, unpacked);
  if constexpr (kBits == 3) {
    for (std::size_t i = 0; i < kRow / 8; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, unpacked + 8 * i, sizeof word);
      word |= scatter_bits(signs[i]) << 2;
      std::memcpy(unpacked + 8 * i, &word, sizeof word);
    }
  }
  const auto low_table = hn::LoadU(d8, kLevelBytes<kBits>.data());
  const auto high_table = hn::LoadU(d8, kLevelBytes<kBits>.data() + 16);
  for (std::size_t j = 0; j < kRow; j += 16) {
    const auto code = hn::Load(d8, unpacked + j);
    const auto low = hn::TableLookupBytes(low_table, code), high = hn::TableLookupBytes(high_table, code);
    auto* out = reinterpret_cast<std::uint16_t*>(levels + j);
    hn::Store(hn::BitCast(d16, hn::InterleaveLower(d8, low, high)), d16, out);
    hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d8, low, high)), d16, out + 8);
  }
  for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
    const auto level = hn::ConvertTo(d, hn::PromoteTo(integers, hn::Load(shorts, levels + j)));
    hn::Store(hn::Mul(level, hn::Load(d, factors + j)), d, to + j);
  }
}

// Saturates to what binary16 holds.
HWY_INLINE hn::Vec<Floats> saturated(hn::Vec<Floats> x) {
  const Floats d;
  return hn::Min(hn::Max(x, hn::Set(d, -65504.0f)), hn::Set(d, 65504.0f));
}

// Where the planes of a full block begin.
template <int kBits>
struct TurboquantBlock {
  static constexpr std::size_t kCodeBytes = kBits == 3 ? 8 : kRow * kBits / 8;  // of a row of 32
  static constexpr std::size_t kSignBytes = kBits == 3 ? 4 : 0;
  TurboquantBlock(std::byte* bytes, std::size_t head_dim, std::size_t vectors)
      : key_norms(reinterpret_cast<Half*>(bytes)),
        value_norms(key_norms + vectors * kBlockTokens),
        key_codes(reinterpret_cast<std::uint8_t*>(value_norms + vectors * kBlockTokens)),
        value_codes(key_codes + head_dim * kCodeBytes),
        key_signs(value_codes + head_dim * kCodeBytes),
        value_signs(key_signs + head_dim * kSignBytes) {}
  Half *key_norms, *value_norms;
  std::uint8_t *key_codes, *value_codes, *key_signs, *value_signs;
};

template <int kBits>
void encode_turboquant(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  using Block = TurboquantBlock<kBits>;
  const Floats d;
  const std::size_t n = rotated_channels(rows.head_dim), vectors = rows.head_dim / n;
  const float unrotated = 1 / static_cast<float>(n);
  const Block block(out, rows.head_dim, vectors);
  HWY_ALIGN float work[kRotationMax * kRow], squares[kRow], factors[kRow];
  // The factor, by a root mean square as stored, that gives unit variance to coordinates of the unscaled transform.
  const auto to_unit = [&](hn::Vec<Floats> norm)
                           HWY_ATTR { return hn::Mul(inverse_scale(d, norm), hn::Set(d, std::sqrt(unrotated))); };
  for (std::size_t v = 0; v < vectors; ++v) {
    std::memset(squares, 0, sizeof squares);
    for (std::size_t c = 0; c < n; ++c) {
      prefetch(ahead.first + (v * n + c) * 64);
      const auto sign = hn::Set(d, kRotationSigns[c]);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        const auto x = load(d, rows.keys + (v * n + c) * rows.key_stride + j);
        hn::Store(hn::MulAdd(x, x, hn::Load(d, squares + j)), d, squares + j);
        hn::Store(hn::Mul(x, sign), d, work + c * kRow + j);
      }
    }
    for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
      Half* norms = block.key_norms + v * kBlockTokens + j;
      store(d, hn::Sqrt(hn::Mul(hn::Load(d, squares + j), hn::Set(d, unrotated))), norms);
      hn::Store(to_unit(load(d, norms)), d, factors + j);
    }
    hadamard(d, work, n, kRow);
    for (std::size_t c = 0; c < n; ++c) {
      encode_coordinates<kBits>(work + c * kRow, factors, block.key_codes + (v * n + c) * Block::kCodeBytes,
                                block.key_signs + (v * n + c) * Block::kSignBytes);
    }
  }
  for (std::size_t i = 0; i < kBlockTokens * vectors; ++i) {  // token by token, each vector by vector
    for (std::size_t c = 0; c < n; c += kRow) prefetch(ahead.second + (i * n + c) * sizeof(Half));
    auto sum = hn::Zero(d);
    for (std::size_t c = 0; c < n; c += hn::Lanes(d)) {
      const auto x = load(d, rows.values + i * n + c);
      sum = hn::MulAdd(x, x, sum);
      hn::Store(hn::Mul(x, load(d, kRotationSigns.data() + c)), d, work + c);
    }
    const float square = hn::GetLane(hn::SumOfLanes(d, sum));
    block.value_norms[i] = to_half(std::sqrt(square * unrotated));
    const auto factor = to_unit(hn::Set(d, to_float(block.value_norms[i])));
    for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) hn::Store(factor, d, factors + j);
    hadamard_row(work, n);
    for (std::size_t c = 0; c < n; c += kRow) {
      const std::size_t row = (i * n + c) / kRow;
      encode_coordinates<kBits>(work + c, factors, block.value_codes + row * Block::kCodeBytes,
                                block.value_signs + row * Block::kSignBytes);
    }
  }
}

template <int kBits>
void decode_turboquant(const std::byte* in, const KvRows<Half>& rows) {
  using Block = TurboquantBlock<kBits>;
  const Floats d;
  const std::size_t n = rotated_channels(rows.head_dim), vectors = rows.head_dim / n;
  const float scale = kLevelUnit / std::sqrt(static_cast<float>(n));
  const Block block(const_cast<std::byte*>(in), rows.head_dim, vectors);
  HWY_ALIGN float work[kRotationMax * kRow], factors[kRow];
  for (std::size_t v = 0; v < vectors; ++v) {
    for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
      hn::Store(hn::Mul(load(d, block.key_norms + v * kBlockTokens + j), hn::Set(d, scale)), d, factors + j);
    }
    for (std::size_t c = 0; c < n; ++c) {
      decode_coordinates<kBits>(block.key_codes + (v * n + c) * Block::kCodeBytes,
                                block.key_signs + (v * n + c) * Block::kSignBytes, factors, work + c * kRow);
    }
    hadamard(d, work, n, kRow);
    for (std::size_t c = 0; c < n; ++c) {
      const auto sign = hn::Set(d, kRotationSigns[c]);
      for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) {
        store(d, saturated(hn::Mul(hn::Load(d, work + c * kRow + j), sign)),
              rows.keys + (v * n + c) * rows.key_stride + j);
      }
    }
  }
  for (std::size_t i = 0; i < kBlockTokens * vectors; ++i) {
    const auto factor = hn::Set(d, to_float(block.value_norms[i]) * scale);
    for (std::size_t j = 0; j < kRow; j += hn::Lanes(d)) hn::Store(factor, d, factors + j);
    for (std::size_t c = 0; c < n; c += kRow) {
      const std::size_t row = (i * n + c) / kRow;
      decode_coordinates<kBits>(block.value_codes + row * Block::kCodeBytes,
                                block.value_signs + row * Block::kSignBytes, factors, work + c);
    }
    hadamard_row(work, n);
    for (std::size_t c = 0; c < n; c += hn::Lanes(d)) {
      store(d, saturated(hn::Mul(hn::Load(d, work + c), load(d, kRotationSigns.data() + c))), rows.values + i * n + c);
    }
  }
}

}  // namespace shale::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
