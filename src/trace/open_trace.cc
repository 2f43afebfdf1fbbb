#include "trace/formats.h"
#include "trace/trace_reader.h"

namespace shale {

Result<std::unique_ptr<TraceReader>> open_trace(const std::filesystem::path& path, const TraceOptions& options) {
  SHALE_ASSIGN(LineSource lines, LineSource::open(path, options.limits.line_bytes_max));
  SHALE_ASSIGN(const bool more, lines.next());
  if (!more) return fail(ErrorCode::kInvalidArgument, "{} is empty; a trace has a request at least", lines.file());
  lines.unread();
  return read_hash_ids(std::move(lines), options);
}

}  // namespace shale
