// What attention would see of a context if it were compressed, for any choice of tokens per head: in the pool, without
// anything at rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "paging/sequence.h"
#include "quantizers/quantizer.h"

namespace shale {

struct CompressedCopy {
  Sequence sequence;        // lossy; its logical length is the context's
  std::uint64_t bytes = 0;  // of codes and, where tokens were left out, a bit a token and head: what storing it takes
};

// Copies, within the pool, the tokens `kept[layer · kv_heads + head]` (positions, ascending, at least one) of a context
// of whole blocks whose heads agree, as the quantizer gives them back; null: as computed. Groups that share a scale are
// consecutive kept tokens. kFull when the pool has no room; kUnsupported for a head dimension that the quantizer cannot
// take.
Result<CompressedCopy> compressed_copy(PagePool& pool, const Sequence& context,
                                       std::span<const std::vector<std::uint32_t>> kept, const Quantizer* quantizer,
                                       Executor& executor);

}  // namespace shale
