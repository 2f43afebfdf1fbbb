// The captured queries of an entry, kept beside its uncompressed object so that scorers that read queries can rank it
// later. Format: docs/formats/queries.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/error.h"
#include "tier/tier.h"

namespace shale {

struct StoredQueries {
  std::uint32_t layers = 0, query_heads = 0, window = 0, head_dim = 0;
  std::vector<float> values = {};  // [layers][query_heads][window][head_dim]

  bool empty() const { return values.empty(); }
};

// The part of an object's blobs that holds them.
inline constexpr std::uint32_t kQueriesPart = BlobId::kManifest - 1;

// Values are rounded to fp16, as keys are.
AlignedBuffer serialize(const StoredQueries& queries);
// kCorrupt for anything that `serialize` did not write.
Result<StoredQueries> parse_queries(std::span<const std::byte> bytes);

}  // namespace shale
