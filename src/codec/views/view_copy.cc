#include "codec/views/view_copy.h"

#include <cassert>
#include <span>
#include <type_traits>

namespace shale {
namespace {

// A view is copied from where it cannot be written to, and to where it can.
template <class Byte>
constexpr bool kFromView = std::is_const_v<Byte>;

template <class Byte>
CopyDimension dimension(std::size_t extent, std::int64_t view, std::int64_t other) {
  return kFromView<Byte> ? CopyDimension{extent, view, other} : CopyDimension{extent, other, view};
}

template <class Byte, class Other>
void run(const StridedCopy& copy, Byte* view, Other* other) {
  if constexpr (kFromView<Byte>) {
    copy.run(view, other);
  } else {
    copy.run(other, view);
  }
}

template <class Byte>
StridedCopy plan_copy(const KvGeometry& geometry, std::uint32_t tokens, const KvArray<Byte>& view,
                      const KvArray<Byte>& other) {
  const CopyDimension dimensions[] = {dimension<Byte>(geometry.kv_heads, view.head_stride, other.head_stride),
                                      dimension<Byte>(tokens, view.token_stride, other.token_stride),
                                      dimension<Byte>(geometry.head_dim, view.channel_stride, other.channel_stride)};
  return StridedCopy(dimensions, geometry.element_bytes(), kFromView<Byte> ? CopyTo::kCache : CopyTo::kMemory);
}

template <class Byte>
Byte* address(const KvArray<Byte>& array, std::uint32_t layer, std::size_t block) {
  return array.layers[layer] + static_cast<std::int64_t>(block) * array.block_stride;
}

// How far a layer's values lie behind its keys; 0 where layers differ, or values lie before.
template <class Byte>
std::int64_t values_after(const BasicKvView<Byte>& view) {
  const std::int64_t after = view.values.layers[0] - view.keys.layers[0];
  for (std::uint32_t layer = 0; layer < view.geometry.layers; ++layer) {
    if (view.values.layers[layer] - view.keys.layers[layer] != after) return 0;
  }
  return view.keys.block_stride == view.values.block_stride && after > 0 ? after : 0;
}

}  // namespace

template <class Byte>
BlockCopies<Byte>::BlockCopies(const BasicKvView<Byte>& view, KvPacking packing)
    : view_(&view), tail_tokens_((view.tokens - 1) % view.geometry.block_tokens + 1) {
  KvGeometry one_layer = view.geometry;
  one_layer.layers = 1;
  packed_ = packed_view(one_layer, packing, view.keys.layers[0], view.geometry.block_tokens);
  whole_ = plan(view.geometry.block_tokens);
  tail_ = plan(tail_tokens_);
}

template <class Byte>
typename BlockCopies<Byte>::Plan BlockCopies<Byte>::plan(std::uint32_t tokens) const {
  const KvGeometry& geometry = view_->geometry;
  const CopyTo to = kFromView<Byte> ? CopyTo::kCache : CopyTo::kMemory;
  if (geometry.opaque()) {
    return {StridedCopy({}, geometry.key_bytes(), to),
            geometry.value_bytes() > 0 ? StridedCopy({}, geometry.value_bytes(), to) : StridedCopy()};
  }
  Plan plan = {plan_copy(geometry, tokens, view_->keys, packed_.keys),
               plan_copy(geometry, tokens, view_->values, packed_.values)};
  const CopyDimension after = dimension<Byte>(1, values_after(*view_), values_after(packed_));
  if (plan[0].join(plan[1], after.from, after.to)) plan[1] = {};
  return plan;
}

template <class Byte>
template <class Packed>
void BlockCopies<Byte>::copy(const Plan& plan, std::uint32_t layer, std::uint32_t block, Packed* packed) const {
  const std::size_t physical = view_->physical(block);
  run(plan[0], address(view_->keys, layer, physical), packed);
  if (view_->values.layers.empty()) return;
  const std::int64_t after = packed_.values.layers[0] - packed_.keys.layers[0];
  run(plan[1], address(view_->values, layer, physical), packed + after);
}

template <class Byte>
TokenCopies<Byte>::TokenCopies(const BasicKvView<Byte>& view) : view_(&view) {
  const KvGeometry& geometry = view.geometry;
  const auto element = static_cast<std::int64_t>(geometry.element_bytes());
  KvArray<Byte> keys, values;
  keys.token_stride = element;
  keys.channel_stride = element * kBlockTokens;
  values.token_stride = element * geometry.head_dim;
  values.channel_stride = element;
  KvGeometry one_head = geometry;
  one_head.kv_heads = 1;
  for (std::uint32_t count = 0; count <= std::min(kBlockTokens, geometry.block_tokens); ++count) {
    keys_.push_back(plan_copy(one_head, count, view.keys, keys));
    values_.push_back(plan_copy(one_head, count, view.values, values));
  }
}

template <class Byte>
template <class Rows>
void TokenCopies<Byte>::copy(std::uint32_t layer, std::uint32_t head, std::uint32_t first, std::uint32_t count,
                             Rows* block, std::uint32_t row) const {
  assert(row + count <= kBlockTokens);
  const KvGeometry& geometry = view_->geometry;
  const std::size_t element = geometry.element_bytes(), values = element * geometry.head_dim;
  const auto at = [&](const KvArray<Byte>& array, std::size_t physical, std::uint32_t slot) {
    return address(array, layer, physical) + head * array.head_stride + slot * array.token_stride;
  };
  while (count > 0) {
    const std::uint32_t slot = first % geometry.block_tokens, part = std::min(count, geometry.block_tokens - slot);
    const std::size_t physical = view_->physical(first / geometry.block_tokens);
    run(keys_[part], at(view_->keys, physical, slot), block + row * element);
    run(values_[part], at(view_->values, physical, slot), block + (kBlockTokens + row) * values);
    first += part;
    row += part;
    count -= part;
  }
}

KvRows<const Half> HalfBlock::converted_from(std::uint32_t tokens) {
  const std::size_t size = elements(halves_.rows().head_dim);
  if (element_ == KvElement::kBf16) {
    halves_of_bf16({reinterpret_cast<const std::uint16_t*>(raw_.data()), size}, halves_.rows().keys);
  } else if (element_ == KvElement::kF32) {
    halves_of_f32({reinterpret_cast<const float*>(raw_.data()), size}, halves_.rows().keys);
  }
  return halves_.const_rows(tokens);
}

void HalfBlock::convert_to() {
  const std::span<const Half> halves(halves_.rows().keys, elements(halves_.rows().head_dim));
  if (element_ == KvElement::kBf16) {
    bf16_of_halves(halves, reinterpret_cast<std::uint16_t*>(raw_.data()));
  } else if (element_ == KvElement::kF32) {
    f32_of_halves(halves, reinterpret_cast<float*>(raw_.data()));
  }
}

KvRows<const Half> read_tokens(const TokenCopies<const std::byte>& copies, std::uint32_t layer, std::uint32_t head,
                               std::uint32_t first, std::uint32_t count, HalfBlock& block) {
  copies.copy(layer, head, first, count, block.raw(), 0);
  return block.converted_from(count);
}

template class BlockCopies<const std::byte>;
template class BlockCopies<std::byte>;
template void BlockCopies<const std::byte>::copy(const Plan&, std::uint32_t, std::uint32_t, std::byte*) const;
template void BlockCopies<std::byte>::copy(const Plan&, std::uint32_t, std::uint32_t, const std::byte*) const;
template class TokenCopies<const std::byte>;
template class TokenCopies<std::byte>;
template void TokenCopies<const std::byte>::copy(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::byte*,
                                                 std::uint32_t) const;
template void TokenCopies<std::byte>::copy(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, const std::byte*,
                                           std::uint32_t) const;

}  // namespace shale
