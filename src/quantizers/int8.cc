// int8: symmetric, one scale per token and head for its key and one for its value: code = round(x / scale), scale =
// max|x| / 127 in binary16, rounded up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizers/int8.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "quantizers/registry.h"
#include "quantizers/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::int8::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// Scales from each token's largest magnitude: as stored, and their inverses.
void make_scales(const Half* HWY_RESTRICT largest, Half* HWY_RESTRICT out, float* HWY_RESTRICT inverses) {
  const Floats d;
  for (std::size_t i = 0; i < kBlockTokens; i += hn::Lanes(d)) {
    store(d, stored_scale(d, hn::Mul(load(d, largest + i), hn::Set(d, 1.0f / 127)), 127, hn::Zero(d)), out + i);
    hn::Store(inverse_scale(d, load(d, out + i)), d, inverses + i);
  }
}

// Magnitudes order as their bits do.
void largest_keys(const KvRows<const Half>& rows, Half* HWY_RESTRICT largest) {
  const hn::CappedTag<std::uint16_t, kBlockTokens> d;
  for (std::size_t i = 0; i < kBlockTokens; i += hn::Lanes(d)) {
    auto maximum = hn::Zero(d);
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(rows.keys + c * rows.key_stride + i);
      maximum = hn::Max(maximum, hn::And(hn::LoadU(d, row), hn::Set(d, std::uint16_t{0x7fff})));
    }
    hn::StoreU(maximum, d, reinterpret_cast<std::uint16_t*>(largest + i));
  }
}

void largest_values(const KvRows<const Half>& rows, Half* HWY_RESTRICT largest) {
  const Lanes8 d;
  HWY_ALIGN std::int16_t folded[8 * 8];
  for (std::uint32_t token = 0; token < kBlockTokens; token += 8) {
    for (std::uint32_t r = 0; r < 8; ++r) {
      const Half* row = rows.values + std::size_t{token + r} * rows.head_dim;
      auto maximum = hn::Zero(d);
      for (std::uint32_t c = 0; c < rows.head_dim; c += 8) {
        maximum = hn::Max(maximum, hn::And(load_bits(row + c), hn::Set(d, 0x7fff)));
      }
      hn::Store(maximum, d, folded + 8 * r);
    }
    const auto maxima =
        reduce_rows(folded, [](hn::Vec<Lanes8> a, hn::Vec<Lanes8> b) HWY_ATTR { return hn::Max(a, b); });
    hn::StoreU(maxima, d, reinterpret_cast<std::int16_t*>(largest + token));
  }
}

HWY_INLINE void encode_lanes(const Half* from, hn::Vec<Floats> inverse, std::int8_t* to) {
  const Floats d;
  const hn::Rebind<std::int8_t, Floats> codes;
  hn::StoreU(hn::DemoteTo(codes, hn::NearestInt(hn::Mul(load(d, from), inverse))), codes, to);
}

HWY_INLINE void decode_lanes(const std::int8_t* from, hn::Vec<Floats> scale, Half* to) {
  const Floats d;
  const hn::Rebind<std::int8_t, Floats> codes;
  const hn::Rebind<std::int32_t, Floats> integers;
  store(d, hn::Mul(hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(codes, from))), scale), to);
}

// Where the planes of a full block begin.
struct Block {
  Block(std::byte* bytes, std::uint32_t head_dim)
      : key_scales(reinterpret_cast<Half*>(bytes)),
        value_scales(key_scales + kBlockTokens),
        keys(reinterpret_cast<std::int8_t*>(value_scales + kBlockTokens)),
        values(keys + std::size_t{head_dim} * kBlockTokens) {}
  Half *key_scales, *value_scales;
  std::int8_t *keys, *values;
};

void encode_block(const KvRows<const Half>& rows, std::byte* out, const Ahead& ahead) {
  constexpr std::size_t kLine = 64 / sizeof(Half);  // elements
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const Block block(out, rows.head_dim);
  Half largest[kBlockTokens];
  HWY_ALIGN float inverses[kBlockTokens];
  largest_keys(rows, largest);
  make_scales(largest, block.key_scales, inverses);
  for (std::size_t i = 0; i < kBlockTokens; i += lanes) {
    const auto inverse = hn::Load(d, inverses + i);
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      if (i == 0) prefetch(ahead.first + std::size_t{c} * 64);
      encode_lanes(rows.keys + c * rows.key_stride + i, inverse, block.keys + c * kBlockTokens + i);
    }
  }
  largest_values(rows, largest);
  make_scales(largest, block.value_scales, inverses);
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    const auto inverse = hn::Set(d, inverses[token]);
    for (std::size_t i = token * rows.head_dim; i < (token + 1) * rows.head_dim; i += lanes) {
      if (i % kLine == 0) prefetch(ahead.second + i * sizeof(Half));
      encode_lanes(rows.values + i, inverse, block.values + i);
    }
  }
}

// What follows in memory is most often the next block, and is fetched meanwhile.
void decode_block(const std::byte* in, const KvRows<Half>& rows) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const Block block(const_cast<std::byte*>(in), rows.head_dim);
  const std::size_t codes = std::size_t{rows.head_dim} * kBlockTokens;
  const std::int8_t* const next = block.values + codes;
  for (std::size_t i = 0; i < kBlockTokens; i += lanes) {
    const auto scale = load(d, block.key_scales + i);
    for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
      if (i == 0) prefetch(next + c * kBlockTokens);
      decode_lanes(block.keys + c * kBlockTokens + i, scale, rows.keys + c * rows.key_stride + i);
    }
  }
  HWY_ALIGN float scales[kBlockTokens];
  for (std::size_t i = 0; i < kBlockTokens; i += lanes) hn::Store(load(d, block.value_scales + i), d, scales + i);
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    const auto scale = hn::Set(d, scales[token]);
    prefetch(next + codes + token * rows.head_dim);
    for (std::size_t i = token * rows.head_dim; i < (token + 1) * rows.head_dim; i += lanes) {
      decode_lanes(block.values + i, scale, rows.values + i);
    }
  }
}

}  // namespace shale::int8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace int8 {
HWY_EXPORT(encode_block);
HWY_EXPORT(decode_block);

class Int8 final : public Quantizer {
 public:
  std::string_view name() const override { return "int8"; }
  double bits() const override { return 8; }

 private:
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const override {
    const std::size_t scales = tokens * sizeof(Half);
    return {Plane{1, scales}, Plane{1, scales}, Plane{head_dim, tokens}, Plane{tokens, head_dim}};
  }
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    HWY_DYNAMIC_DISPATCH(int8::encode_block)(rows, out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    HWY_DYNAMIC_DISPATCH(int8::decode_block)(in, rows);
  }
};

}  // namespace int8

std::unique_ptr<Quantizer> make_int8(const CachegenTables*) { return std::make_unique<int8::Int8>(); }

}  // namespace shale
#endif
