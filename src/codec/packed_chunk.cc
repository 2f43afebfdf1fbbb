#include "codec/packed_chunk.h"

#include <atomic>
#include <cstring>

namespace shale {
namespace {

// The head of the chunk's first section, which all of a layer's heads follow.
std::uint32_t first_head(const ObjectLayout& layout, const ChunkInfo& chunk) {
  return layout.shape().page_index(chunk.first_layer, 0);
}

std::uint32_t heads_of(const ObjectLayout& layout, const ChunkInfo& chunk) {
  return (chunk.end_layer - chunk.first_layer) * layout.shape().kv_heads;
}

}  // namespace

AlignedBuffer pack_chunk(const ObjectLayout& layout, const ChunkInfo& chunk, std::span<const std::byte> unpacked) {
  const Quantizer& quantizer = layout.quantizer(chunk.stratum);
  const std::uint32_t d = layout.shape().head_dim, first = first_head(layout, chunk);
  const std::uint32_t sections = heads_of(layout, chunk);
  const std::size_t bitmap = layout.bitmap_bytes();
  const Hash128 tables = quantizer.tables();
  std::vector<std::byte> packed(packed_header_bytes(sections));
  std::memcpy(packed.data(), &tables.high, sizeof tables.high);
  std::memcpy(packed.data() + sizeof tables.high, &tables.low, sizeof tables.low);
  for (std::uint32_t i = 0; i < sections; ++i) {
    const auto [offset, bytes] = layout.section(chunk.stratum, kBasePlane, chunk.first_layer, first + i);
    const auto section = unpacked.subspan(offset, bytes);
    const std::uint32_t tokens = layout.stratum_tokens(chunk.stratum, first + i);
    packed.insert(packed.end(), section.begin(), section.begin() + static_cast<std::ptrdiff_t>(bitmap));
    quantizer.of_head(first + i).pack(section.subspan(bitmap, quantizer.base_bytes(tokens, d)), tokens, d, packed);
    const auto end = static_cast<std::uint32_t>(packed.size());
    std::memcpy(packed.data() + packed_header_bytes(i), &end, sizeof end);
  }
  AlignedBuffer buffer(packed.size());
  std::memcpy(buffer.data(), packed.data(), packed.size());
  return buffer;
}

Result<AlignedBuffer> unpack_chunk(const ObjectLayout& layout, const ChunkInfo& chunk,
                                   std::span<const std::byte> packed, Executor& executor) {
  const Quantizer& quantizer = layout.quantizer(chunk.stratum);
  const std::uint32_t d = layout.shape().head_dim, head = first_head(layout, chunk);
  const std::size_t sections = heads_of(layout, chunk), bitmap = layout.bitmap_bytes();
  const auto corrupt = [] { return fail(ErrorCode::kCorrupt, "a packed chunk of a stored object cannot be unpacked"); };
  if (packed.size() < packed_header_bytes(sections)) return corrupt();
  Hash128 tables;
  std::memcpy(&tables.high, packed.data(), sizeof tables.high);
  std::memcpy(&tables.low, packed.data() + sizeof tables.high, sizeof tables.low);
  if (tables != quantizer.tables()) {
    return fail(ErrorCode::kMismatch, "a stored object was packed by other tables of {} than are loaded",
                quantizer.name());
  }
  std::vector<std::uint32_t> ends(sections);
  std::memcpy(ends.data(), packed.data() + packed_header_bytes(0), sections * sizeof(std::uint32_t));
  AlignedBuffer unpacked(layout.unpacked_bytes(chunk.stratum, kBasePlane, chunk.first_layer, chunk.end_layer));
  std::memset(unpacked.data(), 0, unpacked.size());
  std::atomic<bool> sound = ends.back() == packed.size();
  executor.parallel_for(sections, [&](std::size_t i) {
    const std::size_t first = i == 0 ? packed_header_bytes(sections) : ends[i - 1];
    if (ends[i] < first || ends[i] > packed.size() || ends[i] - first < bitmap) {
      sound = false;
      return;
    }
    const auto from = packed.subspan(first, ends[i] - first);
    const std::uint32_t index = head + static_cast<std::uint32_t>(i);
    const auto [offset, bytes] = layout.section(chunk.stratum, kBasePlane, chunk.first_layer, index);
    const auto section = unpacked.bytes().subspan(offset, bytes);
    const std::uint32_t tokens = layout.stratum_tokens(chunk.stratum, index);
    std::memcpy(section.data(), from.data(), bitmap);
    if (!quantizer.of_head(index).unpack(from.subspan(bitmap), tokens, d,
                                         section.subspan(bitmap, quantizer.base_bytes(tokens, d)))) {
      sound = false;
    }
  });
  if (!sound) return corrupt();
  return unpacked;
}

}  // namespace shale
