// Loading under way: reads were started by Cache::retrieve; each layer is decoded just before its attention needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/object.h"
#include "core/executor.h"
#include "tier/tier.h"

namespace shale {

// Where one stretch of the prefix came from.
struct SourceUsed {
  std::string where;  // "pool", or the tier's name
  Method method;
  double keep = 1;
  std::uint32_t tokens = 0;  // logical
  std::uint64_t bytes = 0;   // read
  EntryKey key;              // zero for the pool
};

class Retrieval {
 public:
  Retrieval();
  ~Retrieval();
  Retrieval(Retrieval&&) noexcept;
  Retrieval& operator=(Retrieval&&) noexcept;

  std::uint32_t tokens() const;  // logical tokens that need not be computed
  bool lossy() const;
  const std::vector<SourceUsed>& sources() const;

  // Returns once every page of `layer` is in place: waits for its chunks and decodes them on the executor. On an error
  // the sequence must be dropped and the failure reported to the cache.
  Status ensure_layer(std::uint32_t layer, Executor& executor);
  Status ensure_all(Executor& executor);
  // The entry and object that failed.
  struct Failure {
    EntryKey key;
    Hash128 object;
    std::uint32_t tier = 0;
    Error error;
  };
  const std::optional<Failure>& failure() const;

 private:
  friend class Cache;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale
