// Loading under way: Cache::retrieve starts the reads; each layer is decoded just before its attention needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/cost_model.h"
#include "cache/entry_index.h"
#include "codec/object.h"
#include "core/clock.h"
#include "core/executor.h"
#include "tier/tier.h"

namespace shale {

// Where one stretch of the prefix came from.
struct SourceUsed {
  std::string where;  // kPoolSource, or the tier's name
  Method method = Method::full();
  double keep = 1;
  std::uint32_t tokens = 0;  // logical
  std::uint64_t bytes = 0;   // read
  EntryKey key;              // zero for the pool
};

// Movable; entries stay pinned while it lives. Not thread-safe.
class Retrieval {
 public:
  std::uint32_t tokens() const { return tokens_; }  // logical tokens that need not be computed
  bool lossy() const { return lossy_; }
  const std::vector<SourceUsed>& sources() const { return sources_; }

  // Returns once every page of `layer` is in place: waits for its chunks and decodes them on the executor. On an error
  // the sequence must be dropped and the failure reported (Cache::report_failure).
  Status ensure_layer(std::uint32_t layer, Executor& executor);
  Status ensure_all(Executor& executor);

  // The object that could not be read.
  struct Failure {
    EntryKey key;
    Hash128 object;
    std::uint32_t tier = 0;
    Error error;
  };
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  friend class Cache;

  struct Load {
    EntryPin pin;
    StoredObject object;
    Method method;  // that it is read as
    ObjectDecoder decoder;
    std::vector<std::shared_ptr<TierRead>> reads;  // as the manifest's chunks; null for what is not wanted
    std::vector<bool> loaded;                      // per layer group
  };
  Status load_group(Load& load, std::uint32_t group, Executor& executor);

  std::uint32_t tokens_ = 0;
  bool lossy_ = false;
  std::vector<SourceUsed> sources_;
  std::vector<Load> loads_;
  CostModel* costs_ = nullptr;
  const Clock* clock_ = nullptr;
  std::optional<Failure> failure_;
};

}  // namespace shale
