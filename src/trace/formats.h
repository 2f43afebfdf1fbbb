// The formats of traces, one file each: how each is known and opened. Private to the room.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "trace/line_source.h"
#include "trace/trace_reader.h"

namespace shale {

using ReaderResult = Result<std::unique_ptr<TraceReader>>;

// Each takes the lines from the first one on. The current line is the first, to be given again by `next`.
ReaderResult read_hash_ids(LineSource lines, const TraceOptions& options);

}  // namespace shale
