// Compressing in memory, in bounded pieces: what the store does behind its calls, for a request that names a method and
// goes on with the result, and for profiling.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/extent.h"
#include "codec/method.h"
#include "core/error.h"
#include "core/executor.h"
#include "paging/sequence.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

// What it goes by. References must outlive whoever holds this.
struct RunCodec {
  std::uint32_t chunk_tokens = 256;  // a multiple of the pool's block
  const ScorerOptions& scorers;
  const ModelTraits& model;
  const CachegenTables* tables = nullptr;
};

// Consecutive whole blocks, as the extents that a store would keep of them.
struct CompressedRun {
  Method method;
  std::uint32_t tokens = 0;
  std::vector<ExtentEncoder::Encoded> extents;

  // What it takes at rest: blobs that hold `keep`, and tier maps, which are whole at every keep. The rest of manifests
  // (keys, checksums) is not in it.
  std::uint64_t bytes_for(double keep) const;
};

// Ranks, where that is not done, and encodes. One caller at a time.
class RunCompressor {
 public:
  // Tokens [first, first + tokens) of `from`, whole blocks whose heads agree; the sequence's pages there must stay as
  // they are until done. `attention statistics` are of those tokens. kInvalidArgument for unknown methods and for
  // scorers whose needs are not met, by name; kUnsupported for a head dimension that the quantizer cannot take.
  static Result<RunCompressor> start(const RunCodec& codec, const Sequence& from, std::uint32_t first,
                                     std::uint32_t tokens, const Method& method, AttentionStatistics statistics);
  // The same of tokens that are ranked already: `tiers` are theirs, and looked at only for a method with a scorer.
  static Result<RunCompressor> start(const RunCodec& codec, const Sequence& from, std::uint32_t first,
                                     std::uint32_t tokens, const Method& method, TierMap tiers);
  ~RunCompressor();
  RunCompressor(RunCompressor&&) noexcept;
  RunCompressor& operator=(RunCompressor&&) noexcept;

  // The next piece, about a millisecond a thread. False when all is done.
  Result<bool> step(Executor& executor);
  // Once, after step() returned false.
  CompressedRun finish();

 private:
  struct State;
  explicit RunCompressor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Decodes. One caller at a time.
class RunExpander {
 public:
  // Appends the run at `keep`, in (0, 1], to `into`, which ends with a whole block. kFull leaves it as it was. Both
  // must stay where they are until done.
  static Result<RunExpander> start(const RunCodec& codec, const CompressedRun& run, double keep, Sequence& into);
  ~RunExpander();
  RunExpander(RunExpander&&) noexcept;
  RunExpander& operator=(RunExpander&&) noexcept;

  // The next piece. False when all is done; after an error the sequence must be dropped.
  Result<bool> step(Executor& executor);

 private:
  struct State;
  explicit RunExpander(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
