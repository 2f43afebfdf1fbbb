// The block pool as requests see it: which blocks each may need, which requests fit together, and how blocks are freed
// without waiting. Blocks are freed from left to right; single pages serve those who can do with them:
//
//   free blocks  <  of the prefix cache  <  single pages  <  of what is repeated to be stored
//                <  of what waits to be stored  <  holes of KV budgets  <  other requests' (Engine packs and preempts)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache.h"
#include "engine/request_state.h"
#include "engine/storing.h"
#include "model/model.h"

namespace shale {

inline constexpr std::uint32_t kWindowInterval = 64;  // decoded tokens between two looks behind sliding windows

// Not thread-safe. Its constructor's arguments outlive it.
class BlockManager {
 public:
  BlockManager(Cache& cache, Storing& storing, const ModelInfo& model, std::uint32_t chunk_tokens)
      : cache_(cache), storing_(storing), model_(model), chunk_tokens_(chunk_tokens) {}

  // The most blocks that the request may ever need. If the pool has fewer, it can never be served. One with a KV budget
  // holds more while there is room: holes, and what it shares with the prefix cache.
  std::uint32_t blocks_max(const RequestState& run) const;
  // The blocks that it holds while its prompt is computed.
  std::uint32_t blocks_to_begin(const RequestState& run) const;
  // Whether a run that holds nothing yet could begin beside `running`, each of which is sure of its prompt's blocks.
  // Blocks that it would share with them, now or once they are loaded, count once. `margin`: blocks more.
  bool fits(const RequestState& run, std::span<const std::unique_ptr<RequestState>> running,
            std::uint32_t margin) const;
  // Whether there is room for one more load; who waits for all of another's has none of its own. All together stay
  // within half of the pool, so that there is room to compute; or it is the second, so that a tier has the next to
  // read; or the pool has three quarters of its prompt.
  bool may_load(const RequestState& run, std::span<const std::unique_ptr<RequestState>> running) const;

  // Appends room for `tokens` to the run's sequence, and frees no more for it than it takes. False when nothing but
  // other requests' is left.
  bool append(RequestState& run, std::uint32_t tokens);
  // Frees blocks, too. Where that is not enough, returns false: prefixes were evicted, but nothing else was given up.
  bool ensure_free(std::uint32_t blocks);
  // Where prefixes are not enough: gives up one repetition, or storing one run, and evicts what only that held until
  // `blocks` are free. False when there is none.
  bool give_up_one(std::uint32_t blocks);
  // Frees the pages that a sequence needs to own what is left to it (Sequence::own), from the prefix cache. If that is
  // not enough, the prefix cache gives up what it shares with the sequence alone, which owns that where it lies.
  void ensure_owned(const Sequence& sequence);

 private:
  std::uint32_t blocks_missing(const RequestState& run) const;
  bool append_scattered(RequestState& run, std::uint32_t tokens);

  Cache& cache_;
  Storing& storing_;
  const ModelInfo& model_;
  std::uint32_t chunk_tokens_;
};

}  // namespace shale
