#include "scoring/attention_sums.h"

#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/attention_sums.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "scoring/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::attention_sums::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

void add_half(const LayerKv<Half>& layer, std::uint32_t head, std::span<float> sums) {
  add_attention(layer, head, layer.window_tokens, sums);
}
void add_float(const LayerKv<float>& layer, std::uint32_t head, std::span<float> sums) {
  add_attention(layer, head, layer.window_tokens, sums);
}

}  // namespace shale::attention_sums::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace attention_sums {
HWY_EXPORT(add_half);
HWY_EXPORT(add_float);
}  // namespace attention_sums

void add_attention_sums(const LayerKv<Half>& layer, std::uint32_t head, std::span<float> sums) {
  assert(sums.size() >= layer.tokens && layer.window_tokens <= layer.tokens);
  using namespace attention_sums;
  HWY_DYNAMIC_DISPATCH(add_half)(layer, head, sums);
}
void add_attention_sums(const LayerKv<float>& layer, std::uint32_t head, std::span<float> sums) {
  assert(sums.size() >= layer.tokens && layer.window_tokens <= layer.tokens);
  using namespace attention_sums;
  HWY_DYNAMIC_DISPATCH(add_float)(layer, head, sums);
}

}  // namespace shale
#endif
