// Writes request traces, in the plain form or as JSON Lines in Mooncake's form (docs/formats/trace.md). `open_trace`
// reads both back: the same requests, ids and blocks; arrivals exactly from the plain form, and to a nanosecond or so
// from JSON, whose timestamps are milliseconds.
#pragma once

#include <zlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "trace/trace_reader.h"

namespace shale {

enum class TraceForm { kPlain, kJsonLines };

// Not thread-safe.
class TraceWriter {
 public:
  // Replaces the file; "-" is standard output. Compresses with gzip where the name ends in ".gz". kIo.
  static Result<TraceWriter> create(const std::filesystem::path& path, TraceForm form, std::uint32_t block_tokens);

  // Blocks are as many as the tokens ask for (RawRequest).
  Status write(const RawRequest& request);
  // The trace is whole only once this has returned without an error.
  Status finish();

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose_w(file); }
  };

  TraceWriter(gzFile stream, std::string file, TraceForm form, std::uint32_t block_tokens)
      : stream_(stream), file_(std::move(file)), form_(form), block_tokens_(block_tokens) {}

  Status put();
  std::unexpected<Error> cannot_write() const;

  std::unique_ptr<gzFile_s, Close> stream_;
  std::string file_;
  TraceForm form_;
  std::uint32_t block_tokens_;
  std::string line_;
};

}  // namespace shale
