// An engine over a model, and what it stands on. They are put together here alone: Serving does it from a
// configuration, demo and benchmarks over tiers and a clock of their own.
//
//   EngineStack ── owns ──> PagePool   attention's memory
//                       ──> Cache      its tiers, fast to slow, and the metadata store
//                       ──> Engine     requests to tokens
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace shale {

struct EngineStackOptions {
  std::uint64_t pool_bytes = 0;  // a block at least
  CacheOptions cache = {};       // of the model it says the calibration; the rest is filled in
  EngineOptions engine = {};
};

class EngineStack {
 public:
  // Model, tokenizer and clock outlive it. Tiers and metadata store as of Cache::open, whose errors it has, and those
  // of PagePool::create.
  static Result<std::unique_ptr<EngineStack>> open(Model& model, const Tokenizer& tokenizer, EngineStackOptions options,
                                                   std::vector<StoreTier> tiers,
                                                   std::unique_ptr<MetadataStore> metadata_store, const Clock& clock);

  PagePool& pool() { return *pool_; }
  Cache& cache() { return *cache_; }
  Engine& engine() { return *engine_; }

  // Stores what is to be stored, then forgets what the pool keeps for later requests: what comes next comes from the
  // tiers.
  void empty_pool();

 private:
  EngineStack() = default;

  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace shale
