#include <algorithm>

#include "trace/block_interner.h"
#include "trace/trace_reader.h"

namespace shale {
namespace {

void sort_by_arrival(std::vector<TraceRequest>& requests) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_s < b.arrival_s; });
  const double first_s = requests.empty() ? 0 : requests.front().arrival_s;
  for (TraceRequest& request : requests) request.arrival_s -= first_s;
}

}  // namespace

Result<Trace> load_trace(TraceReader& reader, std::string name, const TraceOptions& options) {
  Trace trace;
  trace.name = std::move(name);
  trace.block_tokens = reader.block_tokens();
  BlockInterner interner(trace.parents);
  RawRequest raw;
  for (;;) {
    SHALE_ASSIGN(const bool more, reader.next(raw));
    if (!more) break;
    if (raw.blocks.size() > options.limits.blocks_max - trace.blocks.size()) {
      return fail(ErrorCode::kFull, "{}: request {} exceeds {} blocks in all; cut the trace, or allow more", trace.name,
                  trace.requests.size() + 1, options.limits.blocks_max);
    }
    const auto prompt_blocks = static_cast<std::uint32_t>(raw.blocks.size()) - raw.output_blocks;
    trace.requests.push_back({.arrival_s = raw.arrival_s,
                              .input_tokens = raw.input_tokens,
                              .output_tokens = raw.output_tokens,
                              .first_block = trace.blocks.size(),
                              .prompt_blocks = prompt_blocks,
                              .output_blocks = raw.output_blocks});
    BlockId block = kNoBlock;
    for (const std::uint64_t id : raw.blocks) {
      block = interner.intern(block, id);
      if (block == kNoBlock) {
        return fail(ErrorCode::kFull, "{}: more than {} different blocks; cut the trace", trace.name, kNoBlock);
      }
      trace.blocks.push_back(block);
    }
  }
  if (options.sort) sort_by_arrival(trace.requests);
  return trace;
}

Result<Trace> load_trace(const std::filesystem::path& path, const TraceOptions& options) {
  SHALE_ASSIGN(const auto reader, open_trace(path, options));
  return load_trace(*reader, path == "-" ? "standard input" : path.filename().string(), options);
}

}  // namespace shale
