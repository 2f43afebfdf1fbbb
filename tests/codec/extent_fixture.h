// Views of every kind over memory of their own, and what the tests of extents do with them. Elements are found here by
// the numbers of a view alone, one by one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <ranges>
#include <string>
#include <vector>

#include "codec/context_fixture.h"
#include "codec/extent.h"

namespace shale {

// How an engine may hold its blocks.
enum class Layout { kPoolBlocks, kVllm, kPlain, kPadded };
inline constexpr Layout kLayouts[] = {Layout::kPoolBlocks, Layout::kVllm, Layout::kPlain, Layout::kPadded};

inline constexpr KvGeometry kGeometry = {
    .element = KvElement::kF16, .layers = 3, .kv_heads = 2, .head_dim = 32, .block_tokens = 16};

struct OwnedView {
  AlignedBuffer memory;
  MutableKvView view;

  KvView readable() const { return shale::readable(view); }
};

// Room for `tokens` tokens; blocks lie in a random order, among others that are not the view's. Bytes are random.
inline OwnedView make_view(const KvGeometry& geometry, Layout layout, std::uint32_t tokens, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto element = static_cast<std::int64_t>(geometry.element_bytes());
  const std::int64_t heads = geometry.kv_heads, channels = geometry.head_dim, slots = geometry.block_tokens;
  OwnedView owned;
  MutableKvView& view = owned.view;
  view.geometry = geometry;
  view.tokens = tokens;
  const std::uint32_t blocks = layout == Layout::kPlain ? view.blocks() : view.blocks() + 3;
  view.physical_blocks = blocks;
  const std::size_t padding = layout == Layout::kPadded ? 64 : 0;
  const std::size_t key_bytes = geometry.key_bytes() + padding, block_bytes = geometry.block_bytes() + 2 * padding;
  owned.memory = AlignedBuffer(block_bytes * blocks * geometry.layers);
  for (std::byte& byte : owned.memory.bytes()) byte = static_cast<std::byte>(random());
  for (std::int64_t layer = 0; layer < geometry.layers; ++layer) {
    std::byte* base = owned.memory.data();
    std::int64_t block_stride = static_cast<std::int64_t>(block_bytes);
    std::size_t values_after = key_bytes;
    if (layout == Layout::kPoolBlocks) {  // [blocks][layers][heads]{keys, values}
      base += layer * block_stride;
      block_stride *= geometry.layers;
      if (!geometry.opaque()) values_after /= geometry.kv_heads;
    } else {
      base += layer * block_stride * blocks;
    }
    if (layout == Layout::kVllm || layout == Layout::kPlain) {  // [layers][2][blocks]
      block_stride = static_cast<std::int64_t>(geometry.key_bytes());
      values_after = geometry.key_bytes() * blocks;
      if (geometry.opaque()) values_after = geometry.opaque_bytes[0] * blocks;
    }
    view.keys.layers.push_back(base);
    if (geometry.value_bytes() > 0) view.values.layers.push_back(base + values_after);
    view.keys.block_stride = view.values.block_stride = block_stride;
    if (geometry.opaque() && layout != Layout::kPoolBlocks && layout != Layout::kPadded) {
      view.values.block_stride = geometry.opaque_bytes[1];
    }
  }
  const auto strides = [&](KvArray<std::byte>& array, std::int64_t token, std::int64_t head, std::int64_t channel) {
    array.token_stride = token * element;
    array.head_stride = head * element;
    array.channel_stride = channel * element;
  };
  switch (layout) {
    case Layout::kPoolBlocks:
      strides(view.keys, 1, 2 * channels * slots, slots);
      strides(view.values, channels, 2 * channels * slots, 1);
      break;
    case Layout::kVllm:
    case Layout::kPadded:
      strides(view.keys, heads * channels, channels, 1);
      strides(view.values, heads * channels, channels, 1);
      break;
    case Layout::kPlain:
      strides(view.keys, channels, channels * slots * blocks, 1);
      strides(view.values, channels, channels * slots * blocks, 1);
      if (!geometry.opaque()) view.keys.block_stride = view.values.block_stride = channels * slots * element;
      break;
  }
  if (layout != Layout::kPlain) {
    std::vector<std::uint32_t> physical(blocks);
    std::iota(physical.begin(), physical.end(), 0u);
    std::ranges::shuffle(physical, random);
    view.block_table.assign(physical.begin(), physical.begin() + view.blocks());
  }
  EXPECT_TRUE(view.check()) << view.check().error().message;
  return owned;
}

// Where an element lies, or a block of opaque bytes.
inline std::byte* element_at(const MutableKvView& view, const KvArray<std::byte>& array, std::uint32_t layer,
                             std::uint32_t token, std::uint32_t head = 0, std::uint32_t channel = 0) {
  const std::uint32_t block = token / view.geometry.block_tokens, slot = token % view.geometry.block_tokens;
  return array.layers[layer] + static_cast<std::int64_t>(view.physical(block)) * array.block_stride +
         slot * array.token_stride + head * array.head_stride + channel * array.channel_stride;
}

inline float read_element(KvElement element, const std::byte* from) {
  if (element == KvElement::kF32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  if (element == KvElement::kF16) return to_float(Half{bits});
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// bf16 by cutting: what is written here fits.
inline void write_element(KvElement element, float value, std::byte* to) {
  if (element == KvElement::kF32) return static_cast<void>(std::memcpy(to, &value, sizeof value));
  const std::uint16_t bits = element == KvElement::kF16
                                 ? to_half(value).bits
                                 : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  std::memcpy(to, &bits, sizeof bits);
}

// Visits the bytes of tokens [first, first + count): visit(layer, token, array of keys or of values, address, bytes).
template <class Visit>
void for_each_element(const MutableKvView& view, std::uint32_t first, std::uint32_t count, const Visit& visit) {
  const KvGeometry& geometry = view.geometry;
  for (const KvArray<std::byte>* array : {&view.keys, &view.values}) {
    const bool values = array == &view.values;
    for (std::uint32_t layer = 0; layer < array->layers.size(); ++layer) {
      for (std::uint32_t token = first; token < first + count; ++token) {
        if (geometry.opaque()) {
          if (token % geometry.block_tokens == 0) {
            visit(layer, values, token, 0u, 0u, element_at(view, *array, layer, token), geometry.opaque_bytes[values]);
          }
          continue;
        }
        for (std::uint32_t head = 0; head < geometry.kv_heads; ++head) {
          for (std::uint32_t c = 0; c < geometry.head_dim; ++c) {
            visit(layer, values, token, head, c, element_at(view, *array, layer, token, head, c),
                  geometry.element_bytes());
          }
        }
      }
    }
  }
}

// Tokens [first, first + count) of `a` and those from 0 on of `b`, byte for byte.
inline bool same_tokens(const MutableKvView& a, std::uint32_t first, std::uint32_t count, const MutableKvView& b) {
  bool same = true;
  for_each_element(a, first, count,
                   [&](std::uint32_t layer, bool values, std::uint32_t token, std::uint32_t head, std::uint32_t c,
                       const std::byte* from, std::size_t bytes) {
                     const std::byte* to = element_at(b, values ? b.values : b.keys, layer, token - first, head, c);
                     same = same && std::memcmp(from, to, bytes) == 0;
                   });
  return same;
}

// Makes tokens [0, count) of a view what they are in another memory of the same size, so that all else can be compared.
inline bool only_tokens_differ(const OwnedView& owned, std::uint32_t count, const AlignedBuffer& before) {
  AlignedBuffer now(owned.memory.size());
  std::memcpy(now.data(), owned.memory.data(), now.size());
  for_each_element(
      owned.view, 0, count,
      [&](std::uint32_t, bool, std::uint32_t, std::uint32_t, std::uint32_t, std::byte* at, std::size_t bytes) {
        const std::size_t offset = static_cast<std::size_t>(at - owned.memory.data());
        std::memcpy(now.data() + offset, before.data() + offset, bytes);
      });
  return std::memcmp(now.data(), before.data(), now.size()) == 0;
}

inline AlignedBuffer copy_of(const AlignedBuffer& buffer) {
  AlignedBuffer copy(buffer.size());
  std::memcpy(copy.data(), buffer.data(), copy.size());
  return copy;
}

inline ExtentManifest extent_identity(const KvGeometry& geometry, std::string_view method, std::uint32_t tokens,
                                      std::uint32_t chunk_tokens) {
  ExtentManifest identity;
  identity.name_space[0] = std::byte{7};
  identity.tenant = {1, 2};
  identity.geometry = geometry;
  identity.method = *Method::parse(method);
  identity.chunk_tokens = chunk_tokens;
  identity.tokens = tokens;
  identity.first_position = 512;
  identity.parent[31] = std::byte{1};
  for (std::uint32_t block = 0; block < tokens / geometry.block_tokens; ++block) {
    identity.keys.push_back({});
    identity.keys.back()[0] = static_cast<std::byte>(block);
  }
  identity.token_ids.resize(tokens);
  std::iota(identity.token_ids.begin(), identity.token_ids.end(), 100);
  return identity;
}

inline Result<ExtentEncoder::Encoded> encode_extent(KvView view, ExtentManifest identity, Executor& executor,
                                                    std::vector<Ranking> rankings = {}) {
  SHALE_ASSIGN(ExtentEncoder encoder, ExtentEncoder::start(std::move(view), std::move(identity), std::move(rankings)));
  while (encoder.step(executor)) {
  }
  return encoder.finish();
}

// Hands over every range of a span, the last first, cut out of the parts.
inline Status decode_ranges(ExtentDecoder& decoder, const std::vector<AlignedBuffer>& parts, Executor& executor) {
  Status status;
  for (std::uint32_t i = static_cast<std::uint32_t>(decoder.ranges().size()); i-- > 0;) {
    const ExtentRange& range = decoder.ranges()[i];
    AlignedBuffer bytes(range.bytes);
    std::memcpy(bytes.data(), parts[range.blob].data() + range.offset, range.bytes);
    const Status decoded = decoder.decode(i, bytes.bytes(), executor);
    if (!decoded) status = decoded;
  }
  return status;
}

inline Status decode_extent(const ExtentEncoder::Encoded& extent, const ExtentSpan& span, const MutableKvView& view,
                            Executor& executor) {
  SHALE_ASSIGN(ExtentDecoder decoder, ExtentDecoder::start(extent.manifest, span, view));
  return decode_ranges(decoder, extent.parts, executor);
}

}  // namespace shale
