// A span compressed by the method that a request names, in pieces between the steps of others: ranked and encoded
// from its exact pages, then decoded into a sequence that takes the place of the run's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cache/cache.h"

namespace shale {

// Both sequences stay where they are meanwhile. Not thread-safe.
class SpanCompression {
 public:
  // The span is the run's last part, whole blocks that end `exact`; errors as of RunCompressor::start.
  static Result<std::unique_ptr<SpanCompression>> start(Cache& cache, NewRun run, const Sequence& exact);

  // The next piece, about a millisecond a thread. False when all is done; an error as of RunExpander, kFull where the
  // pool has no room for the result beside the exact pages.
  Result<bool> step(Executor& executor);
  // Blocks that the next piece takes: those of the result, before its first.
  std::uint32_t blocks_needed() const;
  // What was compressed, and the result: what lies before the span is shared. Once, after step() returned false.
  NewRun& run() { return run_; }
  Sequence& result() { return result_; }

 private:
  SpanCompression(Cache& cache, NewRun run, const Sequence& exact, RunCompressor compressor);

  Cache& cache_;
  NewRun run_;
  const Sequence& exact_;
  Sequence result_;
  std::optional<RunCompressor> compressor_;
  CompressedRun compressed_;
  std::optional<RunExpander> expander_;
};

}  // namespace shale
