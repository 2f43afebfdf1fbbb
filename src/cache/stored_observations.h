// An entry's observations as bytes, kept beside its uncompressed object so that every scorer can rank it later. Format:
// docs/formats/observations.md.
#pragma once

#include <cstdint>
#include <span>

#include "core/aligned_buffer.h"
#include "core/error.h"
#include "scoring/observations.h"
#include "tier/tier.h"

namespace shale {

// The part of an object's blobs that holds them.
inline constexpr std::uint32_t kObservationsPart = BlobId::kManifest - 1;

// `observations` must be consistent. Every value comes back bit for bit.
AlignedBuffer serialize(const Observations& observations);
// kMismatch: of another format version. kCorrupt: whatever else `serialize` did not write.
Result<Observations> parse_observations(std::span<const std::byte> bytes);

}  // namespace shale
