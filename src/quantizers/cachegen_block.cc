// cachegen's codes of one block of tokens. Vectors run over a key channel's tokens and over a value's channels, as both
// lie in pages.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/cachegen_block.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include <algorithm>
#include <cmath>

#include "quantizers/cachegen.h"
#include "quantizers/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::cachegen::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

using Channels = std::span<const CachegenTables::Channel>;

inline constexpr std::size_t kGroups = kCachegenGroups.size();
inline constexpr std::uint32_t kLine = 64 / sizeof(Half);  // elements

// What cannot be coded counts as zero.
template <class D>
HWY_INLINE hn::Vec<D> usable(D d, const Half* from) {
  const auto x = load(d, from);
  return hn::IfThenElseZero(hn::Lt(hn::Abs(x), hn::Inf(d)), x);
}

template <class D>
HWY_INLINE void store_codes(D, hn::Vec<D> codes, std::byte* to) {
  const hn::Rebind<std::int8_t, D> bytes;
  const hn::RebindToSigned<D> integers;
  hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(integers, codes)), bytes, reinterpret_cast<std::int8_t*>(to));
}

template <class D>
HWY_INLINE hn::Vec<D> load_codes(D d, const std::byte* from) {
  return load(d, reinterpret_cast<const std::int8_t*>(from));
}

template <class D>
HWY_INLINE void store_elements(D d, hn::Vec<D> x, Half* to) {
  const auto largest = hn::Set(d, 65504.0f);
  store(d, hn::Min(hn::Max(x, hn::Neg(largest)), largest), to);
}

// Codes of differences, and in `within` what still holds: no difference lies beyond all bins.
template <class D>
HWY_INLINE hn::Vec<D> difference_codes(D d, hn::Vec<D> x, hn::Vec<D> anchor, hn::Vec<D> width, hn::Mask<D>& within) {
  const auto largest = hn::Set(d, 127.0f);
  const auto code = hn::Round(hn::Div(hn::Sub(x, anchor), width));
  within = hn::And(within, hn::Le(hn::Abs(code), largest));
  return hn::Min(hn::Max(code, hn::Neg(largest)), largest);
}

// Never below what it is made of, so that the largest code is 127; never zero.
inline Half scale_of(float largest) {
  Half scale = to_half(largest / 127);
  if (to_float(scale) * 127 < largest || scale.bits == 0) ++scale.bits;
  return scale;
}

inline void put_scale(const CachegenSide<std::byte>& side, std::uint32_t token, Half scale) {
  std::memcpy(side.scales + token * sizeof scale, &scale, sizeof scale);
}

// The scales of a side's tokens, and whether each is coded by itself: 0 or 1.
struct TokenScales {
  explicit TokenScales(const CachegenSide<const std::byte>& side) {
    for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
      scale[t] = to_float(side.scale(t));
      by_itself[t] = begins_group(t) || side.by_itself(t) ? 1.0f : 0.0f;
    }
  }
  HWY_ALIGN float scale[kBlockTokens], by_itself[kBlockTokens];
};

// each[g] in the lanes of those tokens, from `first` on, that belong to group g.
template <class D>
HWY_INLINE hn::Vec<D> spread(D d, std::size_t first, const float* each) {
  const auto token = hn::Iota(d, static_cast<float>(first));
  auto lanes = hn::Set(d, each[0]);
  for (std::size_t g = 1; g < kGroups; ++g) {
    const auto from = hn::Set(d, static_cast<float>(kCachegenGroups[g]));
    lanes = hn::IfThenElse(hn::Ge(token, from), hn::Set(d, each[g]), lanes);
  }
  return lanes;
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys

void encode_keys(const KvRows<const Half>& rows, Channels channels, const CachegenSide<std::byte>& side,
                 const std::byte* ahead) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto tile = hwy::AllocateAligned<float>(std::size_t{rows.head_dim} * kBlockTokens);
  const auto anchors = hwy::AllocateAligned<float>(rows.head_dim * kGroups);
  HWY_ALIGN float largest[kBlockTokens] = {};
  for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
    prefetch(ahead + std::size_t{c} * 64);
    for (std::size_t i = 0; i < kBlockTokens; i += lanes) {
      const auto x = usable(d, rows.keys + c * rows.key_stride + i);
      hn::Store(x, d, &tile[c * kBlockTokens + i]);
      hn::Store(hn::Max(hn::Load(d, largest + i), hn::Abs(x)), d, largest + i);
    }
  }
  Half stored[kGroups];
  float scale[kGroups], inverse[kGroups];
  HWY_ALIGN float begins[kBlockTokens] = {}, strays[kBlockTokens] = {};
  for (std::size_t g = 0; g < kGroups; ++g) {
    stored[g] = scale_of(largest[kCachegenGroups[g]]);
    scale[g] = to_float(stored[g]);
    inverse[g] = 1 / scale[g];
    begins[kCachegenGroups[g]] = 1;
  }
  for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      const float x = tile[std::size_t{c} * kBlockTokens + kCachegenGroups[g]];
      anchors[c * kGroups + g] = scale[g] * std::nearbyint(x * inverse[g]);
    }
  }
  for (std::size_t i = 0; i < kBlockTokens; i += lanes) {
    const auto begin = hn::Gt(hn::Load(d, begins + i), hn::Zero(d));
    const auto inverses = spread(d, i, inverse);
    auto within = hn::Eq(hn::Zero(d), hn::Zero(d));
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      const auto x = hn::Load(d, &tile[c * kBlockTokens + i]);
      const auto anchor = spread(d, i, &anchors[c * kGroups]);
      const auto difference = difference_codes(d, x, anchor, hn::Set(d, channels[c].width), within);
      const auto code = hn::IfThenElse(begin, hn::Round(hn::Mul(x, inverses)), difference);
      store_codes(d, code, &side.code(static_cast<std::uint32_t>(i), c));
    }
    hn::Store(hn::IfThenZeroElse(within, hn::Set(d, 1.0f)), d, strays + i);
  }
  std::fill_n(side.scales, kBlockTokens * sizeof(Half), std::byte{0});
  for (std::size_t g = 0; g < kGroups; ++g) put_scale(side, kCachegenGroups[g], stored[g]);
  for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
    if (begins_group(t) || strays[t] == 0) continue;
    const Half own = scale_of(largest[t]);
    put_scale(side, t, own);
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      const float code = std::nearbyint(tile[std::size_t{c} * kBlockTokens + t] / to_float(own));
      side.code(t, c) = static_cast<std::byte>(static_cast<std::int8_t>(code));
    }
  }
}

void decode_keys(const CachegenSide<const std::byte>& side, Channels channels, const KvRows<Half>& rows) {
  const Floats d;
  const TokenScales scales(side);
  for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
    float anchor[kGroups];
    for (std::size_t g = 0; g < kGroups; ++g) {
      const std::uint32_t t = kCachegenGroups[g];
      anchor[g] = scales.scale[t] * static_cast<float>(static_cast<std::int8_t>(side.code(t, c)));
    }
    const auto width = hn::Set(d, channels[c].width);
    for (std::size_t i = 0; i < kBlockTokens; i += hn::Lanes(d)) {
      const auto code = load_codes(d, &side.code(static_cast<std::uint32_t>(i), c));
      const auto by_itself = hn::Gt(hn::Load(d, scales.by_itself + i), hn::Zero(d));
      const auto x = hn::IfThenElse(by_itself, hn::Mul(hn::Load(d, scales.scale + i), code),
                                    hn::MulAdd(width, code, spread(d, i, anchor)));
      store_elements(d, x, rows.keys + c * rows.key_stride + i);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Values

// What one token's value needs beside it: [head_dim] each.
struct ValueRows {
  explicit ValueRows(Channels channels)
      : memory(hwy::AllocateAligned<float>(3 * channels.size())),
        widths(memory.get()),
        anchor(widths + channels.size()),
        elements(anchor + channels.size()) {
    for (std::size_t c = 0; c < channels.size(); ++c) widths[c] = channels[c].width;
    std::fill_n(anchor, channels.size(), 0.0f);
  }
  hwy::AlignedFreeUniquePtr<float[]> memory;
  float *widths, *anchor, *elements;
};

// Head dimensions are multiples of 8.
using Eight = hn::CappedTag<float, 8>;

void encode_values(const KvRows<const Half>& rows, Channels channels, const CachegenSide<std::byte>& side,
                   const std::byte* ahead) {
  const Eight d;
  const std::size_t lanes = hn::Lanes(d), head_dim = rows.head_dim;
  const ValueRows row(channels);
  for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
    auto largest = hn::Zero(d);
    for (std::size_t c = 0; c < head_dim; c += lanes) {
      if (c % kLine == 0) prefetch(ahead + (t * head_dim + c) * sizeof(Half));
      const auto x = usable(d, rows.values + t * head_dim + c);
      hn::StoreU(x, d, row.elements + c);
      largest = hn::Max(largest, hn::Abs(x));
    }
    auto within = hn::Eq(largest, largest);
    if (!begins_group(t)) {
      for (std::size_t c = 0; c < head_dim; c += lanes) {
        const auto code = difference_codes(d, hn::LoadU(d, row.elements + c), hn::LoadU(d, row.anchor + c),
                                           hn::LoadU(d, row.widths + c), within);
        store_codes(d, code, &side.code(t, static_cast<std::uint32_t>(c)));
      }
      put_scale(side, t, Half{});
      if (hn::AllTrue(d, within)) continue;
    }
    const Half stored = scale_of(hn::GetLane(hn::MaxOfLanes(d, largest)));
    put_scale(side, t, stored);
    const auto scale = hn::Set(d, to_float(stored)), inverse = hn::Set(d, 1 / to_float(stored));
    for (std::size_t c = 0; c < head_dim; c += lanes) {
      const auto code = hn::Round(hn::Mul(hn::LoadU(d, row.elements + c), inverse));
      store_codes(d, code, &side.code(t, static_cast<std::uint32_t>(c)));
      if (begins_group(t)) hn::StoreU(hn::Mul(scale, code), d, row.anchor + c);
    }
  }
}

void decode_values(const CachegenSide<const std::byte>& side, Channels channels, const KvRows<Half>& rows) {
  const Eight d;
  const ValueRows row(channels);
  const TokenScales scales(side);
  for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
    const auto scale = hn::Set(d, scales.scale[t]);
    for (std::size_t c = 0; c < rows.head_dim; c += hn::Lanes(d)) {
      const auto code = load_codes(d, &side.code(t, static_cast<std::uint32_t>(c)));
      hn::Vec<Eight> x;
      if (scales.by_itself[t] != 0) {
        x = hn::Mul(scale, code);
        if (begins_group(t)) hn::StoreU(x, d, row.anchor + c);
      } else {
        x = hn::MulAdd(hn::LoadU(d, row.widths + c), code, hn::LoadU(d, row.anchor + c));
      }
      store_elements(d, x, rows.values + t * rows.head_dim + c);
    }
  }
}

void encode_block(const KvRows<const Half>& rows, const CachegenChannels& channels, std::byte* out,
                  const Ahead& ahead) {
  encode_keys(rows, channels.keys, cachegen_side(out, kBlockTokens, rows.head_dim, false), ahead.first);
  encode_values(rows, channels.values, cachegen_side(out, kBlockTokens, rows.head_dim, true), ahead.second);
}

void decode_block(const std::byte* in, const CachegenChannels& channels, const KvRows<Half>& rows) {
  decode_keys(cachegen_side(in, kBlockTokens, rows.head_dim, false), channels.keys, rows);
  decode_values(cachegen_side(in, kBlockTokens, rows.head_dim, true), channels.values, rows);
}

// ---------------------------------------------------------------------------------------------------------------------
// Packed codes

// Which of the channel's ranges the slot lies in: how many begin behind it says so.
HWY_INLINE std::size_t symbol_at(const CachegenTables::Channel& channel, std::uint32_t slot) {
  const hn::CappedTag<std::int16_t, kCachegenSymbols> d;
  const auto at = hn::Set(d, static_cast<std::int16_t>(slot));
  const auto* starts = reinterpret_cast<const std::int16_t*>(channel.starts.data());
  std::size_t behind = 0;
  for (std::size_t s = 0; s < kCachegenSymbols; s += hn::Lanes(d)) {
    behind += hn::CountTrue(d, hn::Gt(hn::LoadU(d, starts + s), at));
  }
  return kCachegenSymbols - 1 - behind;
}

void read_differences(RansReader& from, Channels channels, const CachegenSide<std::byte>& side, std::uint32_t token) {
  RansReader reader = from;  // in registers
  for (std::uint32_t first = 0; first < channels.size(); first += kRansStates) {
    HWY_UNROLL(4)
    for (std::uint32_t state = 0; state < kRansStates; ++state) {
      const CachegenTables::Channel& channel = channels[first + state];
      const std::size_t symbol = symbol_at(channel, reader.slot(state));
      reader.take(state, channel.starts[symbol], channel.starts[symbol + 1] - channel.starts[symbol]);
      std::byte code = static_cast<std::byte>(symbol - kCachegenCentre);
      if (HWY_UNLIKELY(symbol == kCachegenEscape)) {
        const std::uint32_t raw = reader.slot(state) / kCachegenRawCount;
        reader.take(state, raw * kCachegenRawCount, kCachegenRawCount);
        code = static_cast<std::byte>(raw);
      }
      side.code(token, first + state) = code;
    }
  }
  from = reader;
}

}  // namespace shale::cachegen::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace cachegen {
HWY_EXPORT(encode_block);
HWY_EXPORT(decode_block);
HWY_EXPORT(read_differences);
}  // namespace cachegen

void encode_cachegen_block(const KvRows<const Half>& rows, const CachegenChannels& channels, std::byte* out,
                           const Ahead& ahead) {
  HWY_DYNAMIC_DISPATCH(cachegen::encode_block)(rows, channels, out, ahead);
}

void decode_cachegen_block(const std::byte* in, const CachegenChannels& channels, const KvRows<Half>& rows) {
  HWY_DYNAMIC_DISPATCH(cachegen::decode_block)(in, channels, rows);
}

void read_cachegen_differences(RansReader& from, std::span<const CachegenTables::Channel> channels,
                               const CachegenSide<std::byte>& side, std::uint32_t token) {
  HWY_DYNAMIC_DISPATCH(cachegen::read_differences)(from, channels, side, token);
}

void write_cachegen_differences(RansWriter& to, std::span<const CachegenTables::Channel> channels,
                                const CachegenSide<const std::byte>& side, std::uint32_t token) {
  RansWriter writer = std::move(to);  // in registers
  for (std::size_t end = channels.size(); end > 0; end -= kRansStates) {
    HWY_UNROLL(4)
    for (std::size_t state = kRansStates; state-- > 0;) {
      const std::size_t c = end - kRansStates + state;
      const CachegenTables::Channel& channel = channels[c];
      const auto code = static_cast<std::int8_t>(side.code(token, static_cast<std::uint32_t>(c)));
      const std::size_t symbol = cachegen_symbol(code);
      if (symbol == kCachegenEscape)
        writer.put(state, static_cast<std::uint8_t>(code) * kCachegenRawCount, kCachegenRawCount);
      writer.put(state, channel.starts[symbol], channel.starts[symbol + 1] - channel.starts[symbol]);
    }
  }
  to = std::move(writer);
}

}  // namespace shale
#endif
