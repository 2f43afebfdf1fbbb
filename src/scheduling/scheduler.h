// Which request is next: in the simulator as in the engine. One file each in this folder; the table is schedulers.h.
//
// Whoever serves requests adds each one when it has arrived and takes one whenever it can serve one. A scheduler that
// reads the cache asks for resident prefixes (PrefixLookup) or is told of every change (CacheObserver); the others see
// only what arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/block_id.h"

namespace shale {

struct WaitingRequest {
  std::uint32_t id = 0;  // in order of arrival: of equals the smallest goes first
  double arrival_s = 0;
  std::uint64_t prompt_blocks = 0;
  std::span<const BlockId> blocks = {};  // those of a trace; stays valid until the request is taken
};

// The cache as a scheduler sees it.
class PrefixLookup {
 public:
  virtual ~PrefixLookup() = default;
  // How many blocks at the start of the prompt are resident.
  virtual std::uint32_t resident_prefix(const WaitingRequest& request) const = 0;
  // The same; the blocks found count as used by the latest request, where the cache lets a look-up count.
  virtual std::uint32_t touch_prefix(const WaitingRequest& request) { return resident_prefix(request); }
};

// Told of every block that comes or goes, a parent before its children when they come and after them when they go.
class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void inserted(BlockId block) = 0;
  virtual void evicted(BlockId block) = 0;
};

// Deterministic; not thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void add(const WaitingRequest& request) = 0;
  virtual std::size_t waiting() const = 0;
  // The id of the request to serve now; it no longer waits. Requires waiting() > 0.
  virtual std::uint32_t take() = 0;
  // A request that waits does so no longer.
  virtual void withdraw(std::uint32_t id) = 0;
  // Whom the cache must tell of its changes, from before the first `add`; null when nobody need be told.
  virtual CacheObserver* observer() { return nullptr; }
};

}  // namespace shale
