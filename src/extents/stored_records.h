// An index's records of the extents that lie on a tier, as their blobs say.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "core/error.h"
#include "extents/index_records.h"
#include "tier/tier.h"

namespace shale {

// The record that the extent is stored; nothing where it does not lie there whole, at any keep. Nobody but its saver
// knows the quality of a lossy one: 0. Used last at `now_s`. kIo or kBusy where the tier does not say. Blocks.
Result<std::optional<IndexRecord>> find_stored(Tier& tier, const Hash128& name, std::uint64_t tag, double now_s);

// The same of whatever extent's manifest that is.
Result<std::optional<IndexRecord>> find_stored(Tier& tier, const BlobId& manifest, double now_s);

// The same of every extent that lies there whole. The manifests of which the tier does not say, in order. Blocks.
Result<std::vector<BlobId>> for_each_stored(Tier& tier, double now_s,
                                            const std::function<void(const IndexRecord&)>& visit);

// The same of some of these manifests, the first; those of which the tier still does not say are the last then, and the
// others leave. Whether there are any. Blocks.
bool read_again(Tier& tier, std::deque<BlobId>& unread, double now_s,
                const std::function<void(const IndexRecord&)>& visit);

// Bytes that the extent's blobs take there, whole or not. Blocks.
std::uint64_t bytes_left(const Tier& tier, const Hash128& name, std::uint64_t tag);

}  // namespace shale
