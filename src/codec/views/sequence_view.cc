#include "codec/views/sequence_view.h"

#include <algorithm>

#include "paging/page_tokens.h"

namespace shale {
namespace {

std::byte* memory_of(WritableHostView view, PageId page) { return view.writable_bytes(page).data(); }
const std::byte* memory_of(HostView view, PageId page) { return view.bytes(page).data(); }

// Block s of the pool is physical block s.
template <class Byte, class Host>
BasicKvView<Byte> pool_view(const PagePool& pool, const Host& host, std::span<const PoolBlockId> blocks,
                            std::uint32_t tokens) {
  const PageShape& shape = pool.shape();
  const auto block_bytes = static_cast<std::int64_t>(shape.block_bytes());
  const auto page_bytes = static_cast<std::int64_t>(shape.page_bytes());
  BasicKvView<Byte> view{.geometry = geometry_of(shape), .keys = {}, .values = {}, .block_table = {}};
  view.tokens = tokens;
  view.physical_blocks = pool.blocks_total();
  view.block_table.assign(blocks.begin(), blocks.end());
  if (blocks.empty()) return view;
  Byte* const block = memory_of(host, blocks.front() * shape.pages_per_block());
  Byte* const begin = block - static_cast<std::int64_t>(blocks.front()) * block_bytes;
  const bool opaque = view.geometry.opaque();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    Byte* const keys = begin + page_bytes * shape.page_index(layer, 0);
    view.keys.layers.push_back(keys);
    if (!opaque) view.values.layers.push_back(keys + shape.key_elements() * sizeof(Half));
  }
  view.keys.block_stride = block_bytes;
  if (opaque) return view;
  constexpr std::int64_t kElement = sizeof(Half);
  view.values.block_stride = block_bytes;
  view.keys.head_stride = view.values.head_stride = page_bytes;
  view.keys.token_stride = view.values.channel_stride = kElement;
  view.keys.channel_stride = kElement * shape.block_size;
  view.values.token_stride = kElement * shape.head_dim;
  return view;
}

}  // namespace

KvGeometry geometry_of(const PageShape& shape) {
  KvGeometry geometry;
  geometry.layers = shape.layers;
  geometry.block_tokens = shape.block_size;
  if (shape.element == PageElement::kHalf) {
    geometry.kv_heads = shape.kv_heads;
    geometry.head_dim = shape.head_dim;
  } else {
    geometry.element = KvElement::kOpaque;
    geometry.opaque_bytes = {static_cast<std::uint32_t>(shape.kv_heads * shape.page_bytes()), 0};
  }
  return geometry;
}

KvView view_of(const Sequence& sequence, std::uint32_t first, std::uint32_t tokens) {
  return pool_view<const std::byte>(sequence.pool(), sequence.pool().host_view(), sequence.last_blocks(first, tokens),
                                    tokens);
}

MutableKvView view_of(Sequence& sequence, std::uint32_t first, std::uint32_t tokens) {
  return pool_view<std::byte>(sequence.pool(), sequence.pool().host_view(), sequence.last_blocks(first, tokens),
                              tokens);
}

StagedTokens::StagedTokens(const PageShape& shape, std::uint32_t tokens)
    : halves_(shape.with(PageElement::kHalf)),
      tokens_(tokens),
      bytes_(halves_.block_bytes() * halves_.pages_for(tokens)) {
  std::ranges::fill(bytes_.bytes(), std::byte{0});
}

MutableKvView StagedTokens::view() {
  return packed_view(geometry_of(halves_), KvPacking::kHeadPages, bytes_.data(), tokens_);
}

std::byte* StagedTokens::page(std::uint32_t layer, std::uint32_t head, std::uint32_t block) {
  const std::size_t blocks = halves_.pages_for(tokens_);
  return bytes_.data() + ((layer * blocks + block) * halves_.kv_heads + head) * halves_.page_bytes();
}

void StagedTokens::read(const Sequence& sequence, std::uint32_t first, Executor& executor) {
  const PagePool& pool = sequence.pool();
  const HostView host = pool.host_view();
  const std::span<const PoolBlockId> blocks = sequence.last_blocks(first, tokens_);
  executor.parallel_for(halves_.pages_per_block(), [&](std::size_t i) {
    const auto index = static_cast<std::uint32_t>(i);
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const auto to = MutablePageView::of(page(index / halves_.kv_heads, index % halves_.kv_heads, b), halves_);
      read_tokens(pool.shape(), host.bytes(pool.page_of(blocks[b], index)), 0, halves_.block_size, to.keys,
                  halves_.block_size, to.values);
    }
  });
}

void StagedTokens::write(Sequence& sequence, std::uint32_t first, Executor& executor) {
  PagePool& pool = sequence.pool();
  const WritableHostView host = pool.host_view();
  const std::span<const PoolBlockId> blocks = sequence.last_blocks(first, tokens_);
  executor.parallel_for(halves_.pages_per_block(), [&](std::size_t i) {
    const auto index = static_cast<std::uint32_t>(i);
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const auto from = PageView::of(page(index / halves_.kv_heads, index % halves_.kv_heads, b), halves_);
      write_tokens(pool.shape(), host.writable_bytes(pool.page_of(blocks[b], index)), 0, halves_.block_size, from.keys,
                   halves_.block_size, from.values);
    }
  });
}

}  // namespace shale
