// Request traces: any bytes are an error with a place, or a trace that holds together and comes back the same from each
// form that it can be written in.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"
#include "trace/trace_statistics.h"
#include "trace/trace_writer.h"

namespace {

using namespace shale;

// A file in memory, reached by a path.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("trace", 0)), path_(fmt::format("/proc/self/fd/{}", file_)) {}
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void fill(const unsigned char* data, std::size_t size) const {
    if (write(file_, data, size) != static_cast<ssize_t>(size)) __builtin_trap();
  }

 private:
  int file_;
  std::string path_;
};

void check_sound(const Trace& trace) {
  check(!trace.requests.empty());
  double before = 0;
  for (const TraceRequest& request : trace.requests) {
    check(request.arrival_s >= before);
    before = request.arrival_s;
    BlockId parent = kNoBlock;
    for (const BlockId block : trace.conversation(request)) {
      check(block < trace.unique_blocks() && trace.parents[block] == parent);
      parent = block;
    }
  }
  const TraceStatistics statistics = trace_statistics(trace, 1);
  check(statistics.blocks == statistics.unique_blocks + statistics.reused_blocks);
}

void check_comes_back(const std::string& path, const Trace& trace, const TraceOptions& options) {
  for (const TraceForm form : {TraceForm::kPlain, TraceForm::kJsonLines}) {
    const auto reader = open_trace(path, options);
    const MemoryFile copy;
    auto writer = TraceWriter::create(copy.path(), form, trace.block_tokens);
    check(reader && writer);
    for (RawRequest request; *(*reader)->next(request);) check(writer->write(request).has_value());
    check(writer->finish().has_value());
    const auto again = load_trace(copy.path(), {.limits = options.limits});
    check(again && again->blocks == trace.blocks && again->parents == trace.parents);
    check(again->requests.size() == trace.requests.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const MemoryFile file;
  file.fill(data, size);
  TraceOptions options;
  options.limits = {.line_bytes_max = 1 << 16, .request_blocks_max = 1 << 12, .blocks_max = 1 << 16};
  options.tokenize = [](std::string_view text) -> Result<std::vector<std::int32_t>> {
    return std::vector<std::int32_t>(text.begin(), text.end());
  };
  if (size > 0) {
    options.sessions.sharing = static_cast<PrefixSharing>(data[size - 1] % 3);
    options.sessions.starts = data[size - 1] % 2 ? SessionStarts::kPoisson : SessionStarts::kTogether;
  }
  const auto trace = load_trace(file.path(), options);
  if (!trace) {
    check(!trace.error().message.empty() && trace.error().code != ErrorCode::kInternal);
    return 0;
  }
  check_sound(*trace);
  TraceOptions no_line_limit = options;
  no_line_limit.limits.line_bytes_max = 1 << 20;
  check_comes_back(file.path(), *trace, no_line_limit);
  return 0;
}
