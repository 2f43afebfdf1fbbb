// Chunks of quantizers that pack: the tables they are packed by, where each section ends, the sections. The rest of the
// codec works on chunks as they are before packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/aligned_buffer.h"
#include "core/error.h"
#include "core/executor.h"
#include "quantizers/quantizer.h"

namespace shale {

// What one (layer, KV head) has in a chunk: codes, padding.
struct CodedSection {
  std::uint32_t head = 0;  // layer · kv_heads + head
  std::uint32_t tokens = 0;
  std::size_t offset = 0;  // in the chunk, before packing
  std::size_t bytes = 0;
};

// The header before the first section of a packed chunk: the hash of its tables, and where each section ends, u32.
inline constexpr std::size_t packed_header_bytes(std::size_t sections) {
  return sizeof(Hash128) + sections * sizeof(std::uint32_t);
}

// Packs a chunk's sections.
AlignedBuffer pack_chunk(const Quantizer& quantizer, std::uint32_t head_dim, std::span<const CodedSection> sections,
                         std::span<const std::byte> unpacked);

// The reverse, over the executor. kMismatch for a chunk of other tables than the quantizer's, kCorrupt for one that
// cannot have been packed; any bytes do one or the other or unpack.
Result<AlignedBuffer> unpack_chunk(const Quantizer& quantizer, std::uint32_t head_dim,
                                   std::span<const CodedSection> sections, std::span<const std::byte> packed,
                                   Executor& executor);

}  // namespace shale
