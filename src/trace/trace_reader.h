// Request traces in files, read one request at a time, so that a trace may be larger than memory.
//
// `open_trace` tells the format by what the file holds, never by its name (docs/formats/trace.md):
//
//   mooncake  JSON Lines with `hash_ids`, of any block size; also Qwen-Bailian's
//   sessions  JSON Lines, a coding assistant's session each, ids relative to the request before (kv-cache-tester's)
//   azure     CSV of arrivals and token counts (AzurePublicDataset); no ids, so no two requests share a block
//   tokens    JSON Lines with token ids, cut in blocks here
//   text      JSON Lines with text, which `TraceOptions::tokenize` turns into tokens
//   plain     text to write by hand
//
// Any of them may be compressed with gzip. Nothing is skipped silently but blank lines (and comments in `plain`): what
// does not parse is kInvalidArgument, "FILE:LINE:COLUMN: what is wrong; what to do", lines and columns (bytes) from 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "trace/trace.h"

namespace shale {

// A request as its file gives it. An id stands for its block after one particular prefix, or only after the block
// before it: readers of ids do not care which.
struct RawRequest {
  double arrival_s = 0;  // from the trace's first request
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::vector<std::uint64_t> blocks;  // the prompt's, then the answer's
  std::uint32_t output_blocks = 0;    // of `blocks`, the answer's
};

enum class TimestampUnit { kByFormat, kSeconds, kMilliseconds };

// When sessions start, where each session's times count from its own start.
enum class SessionStarts {
  kTogether,  // all at 0, as the file says
  kPoisson,   // seeded, `sessions_per_s`
  kArrivals,  // at the arrivals of another trace, `arrivals`; its end is an error if sessions are left
};

// Which sessions begin with the same blocks, where each session's ids are its own: whole blocks of the tools' and the
// system prompt's text at the start of a session's first request (and of every later one that still begins so).
enum class PrefixSharing {
  kNone,      // ids stay apart, as the file says
  kSameSize,  // tools are the same text where they have as many tokens; the system prompt where both have
  kAll,       // all sessions begin with the same text, as far as the shorter of two reaches
};

struct SessionOptions {
  SessionStarts starts = SessionStarts::kTogether;
  double sessions_per_s = 0.1;
  std::uint64_t seed = 1;
  std::filesystem::path arrivals = {};
  PrefixSharing sharing = PrefixSharing::kNone;
};

// What a file may ask of memory before it is refused.
struct TraceLimits {
  std::uint64_t line_bytes_max = std::uint64_t{256} << 20;
  std::uint64_t request_blocks_max = std::uint64_t{16} << 20;
  std::uint64_t blocks_max = std::uint64_t{1} << 31;       // of all requests of a loaded trace, 4 bytes each
  std::uint64_t open_blocks_max = std::uint64_t{1} << 28;  // of the longest requests of sessions that overlap, 8 each
};

using Tokenize = std::function<Result<std::vector<std::int32_t>>(std::string_view text)>;

struct TraceOptions {
  // Tokens a block; 0: as the file says, where it does not, 512. Where the file says otherwise, an error.
  std::uint32_t block_tokens = 0;
  TimestampUnit timestamps = TimestampUnit::kByFormat;
  // A request that comes before the one above it is an error, unless sorting is asked for: `load_trace` then sorts by
  // arrival, equal ones in the file's order, and readers let negative arrivals pass.
  bool sort = false;
  SessionOptions sessions = {};
  Tokenize tokenize = {};  // needed by format `text` alone
  TraceLimits limits = {};
};

// Not thread-safe.
class TraceReader {
 public:
  virtual ~TraceReader() = default;

  virtual std::string_view format() const = 0;
  virtual std::uint32_t block_tokens() const = 0;
  // False at the trace's end. After an error the reader is good for nothing. `request` is overwritten as a whole; its
  // memory is used again.
  virtual Result<bool> next(RawRequest& request) = 0;
};

// "-" is standard input. kNotFound, kIo, or kInvalidArgument: an unknown format, or a trace without a request.
Result<std::unique_ptr<TraceReader>> open_trace(const std::filesystem::path& path, const TraceOptions& options = {});

// The whole trace with dense ids. While it loads, it needs up to twice the trace's own memory (vectors that grow) and
// 12 to 17 bytes a unique block beside it.
Result<Trace> load_trace(const std::filesystem::path& path, const TraceOptions& options = {});
// The rest of what `reader` reads. Only `sort` and `limits` of `options` count.
Result<Trace> load_trace(TraceReader& reader, std::string name, const TraceOptions& options = {});

}  // namespace shale
