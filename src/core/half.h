// IEEE binary16, the element type of KV pages.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace shale {

struct Half {
  std::uint16_t bits = 0;
  bool operator==(const Half&) const = default;
};
static_assert(sizeof(Half) == 2);

// Round to nearest, ties to even; overflow becomes infinity. For single values: kernels convert in SIMD.
Half to_half(float value);
float to_float(Half value);

void to_half(std::span<const float> from, std::span<Half> to);
void to_float(std::span<const Half> from, std::span<float> to);

}  // namespace shale
