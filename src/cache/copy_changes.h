// What jobs do to the list of an entry's copies, and count.
#pragma once

#include "cache/job.h"

namespace shale {

void count_failure(CacheStats& stats, const Error& error);
// The object has been written to the tier: a new copy, or strata and bits that one there lacked.
void register_copy(Entry& entry, std::uint32_t tier, const ObjectBytes& object);
// Presses or drops a copy, while nobody reads the entry: a chunk that goes while it is being read is a miss.
void cut_copy(JobContext& context, Entry& entry, const CopyCut& cut);

}  // namespace shale
