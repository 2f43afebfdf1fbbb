// Chunks of quantizers that pack: the tables they are packed by, where each section ends, the sections. The rest of the
// codec works on chunks as they are before packing.
#pragma once

#include <cstddef>
#include <span>

#include "codec/layout.h"
#include "core/aligned_buffer.h"
#include "core/error.h"
#include "core/executor.h"

namespace shale {

// Packs a chunk's sections, each of which holds positions and codes.
AlignedBuffer pack_chunk(const ObjectLayout& layout, const ChunkInfo& chunk, std::span<const std::byte> unpacked);

// The reverse, over the executor. kMismatch for a chunk of other tables than the layout's, kCorrupt for one that cannot
// have been packed; any bytes do one or the other or unpack.
Result<AlignedBuffer> unpack_chunk(const ObjectLayout& layout, const ChunkInfo& chunk,
                                   std::span<const std::byte> packed, Executor& executor);

}  // namespace shale
