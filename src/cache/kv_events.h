// vLLM's KV events: what lies where, told as it changes, for routers that send a request to the engine with its prefix.
// Blocks of the pool are on the medium "GPU", of memory tiers on "CPU", of private tiers below on "STORAGE".
//
// Lossy blocks are not told, nor those of a tenant or a salt. Blocks at rest are told where a request that demands
// exact KV may get them. A block is named by the low 64 bits of its key (block_keys.h), which covers everything before
// it. Events may be of larger blocks than the pool's: these are named as their last part, and lie where it does.
//
// Thread-safe. Nothing here waits: where nobody takes the events, all of them are forgotten, which `kCleared` says, and
// what is used again is told again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/store.h"

namespace shale {

enum class KvMedium : std::uint8_t { kGpu, kCpu, kStorage };

struct KvEvent {
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared };  // kCleared: nothing is anywhere
  Kind kind = Kind::kCleared;
  KvMedium medium = KvMedium::kGpu;
  std::vector<std::uint64_t> blocks = {};    // of kStored consecutive
  std::optional<std::uint64_t> parent = {};  // of the first, where it has one; of kStored, as the next two
  std::vector<std::int32_t> tokens = {};     // of all blocks
  std::uint32_t block_tokens = 0;            // of each
};

struct KvEventsOptions {
  std::uint32_t block_tokens = 16;                  // of events: a multiple of the pool's block
  std::vector<std::optional<KvMedium>> tiers = {};  // by tier; nothing: what lies there is not told
  std::size_t blocks_max = std::size_t{1} << 20;    // in events that nobody has taken
};

class KvEvents {
 public:
  // The first event is kCleared: what a process of the same address had before is gone.
  explicit KvEvents(KvEventsOptions options) : options_(std::move(options)), events_(1) {}

  const KvEventsOptions& options() const { return options_; }

  // The pool holds the whole blocks of a chain, which these are.
  void in_pool(std::span<const std::int32_t> tokens, std::span<const BlockKey> keys);
  // It gave up one of them.
  void evicted(std::uint64_t name);
  void at_rest(const StoreEvent& event);

  // All that there are, oldest first.
  std::vector<KvEvent> take();

  static std::uint64_t name_of(const BlockKey& key);

 private:
  // Blocks of a chain, from its `first`-th on, and the key before that.
  struct Chain {
    BlockKey parent;
    std::uint32_t first;
    std::span<const std::int32_t> tokens;
    std::span<const BlockKey> keys;
  };
  // All of these need the mutex held. `news`: whether a block of this name is told.
  void tell_stored(KvMedium medium, const Chain& chain, const std::function<bool(std::uint64_t)>& news);
  void tell_removed(KvMedium medium, std::uint64_t name);
  void push(KvEvent event);
  void clear();
  std::uint8_t tiers_on(KvMedium medium) const;  // a bit each

  const KvEventsOptions options_;
  std::mutex mutex_;
  std::vector<KvEvent> events_;
  std::size_t blocks_waiting_ = 0;
  // What was told.
  std::unordered_set<std::uint64_t> pooled_;
  std::unordered_map<std::uint64_t, std::uint8_t> at_rest_;  // tiers, a bit each
};

}  // namespace shale
