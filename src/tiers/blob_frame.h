// How a blob lies in its file: bytes, zeros, and a footer that ends on a 4 KiB boundary (docs/formats/disk.md). Whole
// blocks let direct I/O move it; the footer keeps the true length and makes truncation and misplaced files visible.
// The blob's own bytes are not covered: objects checksum them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "tier/tier.h"

namespace shale {

inline constexpr std::size_t kBlobFooterBytes = 48;

// Length of the file of a blob of `bytes`: a multiple of kIoAlignment.
constexpr std::uint64_t framed_bytes(std::uint64_t bytes) { return round_up(bytes + kBlobFooterBytes, kIoAlignment); }

// Where in the file the whole blocks begin and end that hold a range; the end is the file's where the range is all of
// it. kCorrupt where a blob in a file of `file_bytes` cannot hold the range.
constexpr std::uint64_t first_block(const BlobRange& range) { return range.offset / kIoAlignment * kIoAlignment; }
Result<std::uint64_t> blocks_end(const BlobId& id, const BlobRange& range, std::uint64_t file_bytes);

// The end of the file, 4 or 8 KiB: what is left of the blob after its last whole block, zeros, the footer.
AlignedBuffer frame_tail(const BlobId& id, std::span<const std::byte> blob);

// The blob's length, given the last block of its file: kCorrupt unless the footer is this blob's and its length is that
// of a blob in a file of `file_bytes`.
Result<std::uint64_t> framed_length(const BlobId& id, std::span<const std::byte> last_block, std::uint64_t file_bytes);

// The blob, given its whole file: the same buffer, cut to the blob's length. kCorrupt with what is wrong.
Result<BlobBytes> unframe(const BlobId& id, std::shared_ptr<AlignedBuffer> file);

}  // namespace shale
