// The formats of traces, one file each. Private to the room.
#pragma once

#include <memory>
#include <string_view>

#include "trace/line_source.h"
#include "trace/trace_reader.h"

namespace shale {

inline constexpr std::uint32_t kBlockTokensDefault = 512;
inline constexpr std::uint32_t kBlockTokensMax = std::uint32_t{1} << 20;

inline std::uint64_t blocks_of(std::uint64_t tokens, std::uint32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Whether `blocks` are what `tokens` fill: all of them, or only the full ones.
inline bool block_count_fits(std::uint64_t blocks, std::uint64_t tokens, std::uint32_t block_tokens) {
  return blocks == blocks_of(tokens, block_tokens) || blocks == tokens / block_tokens;
}

// Readers of lines. The first request is read ahead: it tells what the file holds, and that it holds any.
class LineTraceReader : public TraceReader {
 public:
  LineTraceReader(LineSource lines, const TraceOptions& options)
      : lines_(std::move(lines)), request_blocks_max_(options.limits.request_blocks_max), sort_(options.sort) {}

  Status start();
  Result<bool> next(RawRequest& request) final;

 protected:
  // The file's times as seconds since the first of them. Times that go back are refused, unless they are to be sorted,
  // and times beyond 1e18 seconds. `at` points to the time in the current line.
  Result<double> arrival(double time_s, const char* at);
  // Refuses a request of more blocks than the limits allow, named at `at`.
  Status check_room(std::uint64_t blocks, const char* at) const;

  LineSource lines_;

 private:
  // As TraceReader::next, into an empty request.
  virtual Result<bool> read(RawRequest& request) = 0;

  std::uint64_t request_blocks_max_;
  bool sort_, has_arrival_ = false, has_first_ = false;
  double first_s_ = 0, last_s_ = 0;
  RawRequest first_;
};

// Each takes the lines from the first request's on, or from the header's where the format has one.
using ReaderResult = Result<std::unique_ptr<TraceReader>>;
ReaderResult read_hash_ids(LineSource lines, const TraceOptions& options);
ReaderResult read_sessions(LineSource lines, const TraceOptions& options);
ReaderResult read_azure(LineSource lines, const TraceOptions& options);
ReaderResult read_tokens(LineSource lines, const TraceOptions& options);
ReaderResult read_text(LineSource lines, const TraceOptions& options);
ReaderResult read_plain(LineSource lines, const TraceOptions& options);

template <class Reader, class... Args>
ReaderResult start_reader(Args&&... args) {
  auto reader = std::make_unique<Reader>(std::forward<Args>(args)...);
  SHALE_TRY(reader->start());
  return reader;
}

}  // namespace shale
