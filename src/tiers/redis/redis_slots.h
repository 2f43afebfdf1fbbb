// Which node of a Redis cluster holds which keys (https://redis.io/docs/reference/cluster-spec), as far as is known.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tiers/redis/redis_link.h"

namespace shale {

// CRC16 of the key, or of what stands between its first { and the } behind it, modulo 16384.
std::uint16_t redis_slot(std::string_view key);

// "MOVED 3999 127.0.0.1:6381" or "ASK …"; nothing where the error is another one or cannot be understood. A host that
// is left out is the one that said so.
struct RedisRedirection {
  bool asking = false;  // this once
  std::uint16_t slot = 0;
  RedisNode node;
};
std::optional<RedisRedirection> parse_redirection(std::string_view error, const RedisNode& from);

// Nodes have numbers, which stay theirs; the seed has 0. Thread-safe.
class RedisSlots {
 public:
  explicit RedisSlots(RedisNode seed) : nodes_{std::move(seed)} {}

  // Whether it is one: a server that stands alone holds everything.
  bool cluster() const;
  RedisNode node(std::uint32_t number) const;
  // Nothing where there are too many.
  std::optional<std::uint32_t> number_of(const RedisNode& node);
  // The owner of a slot; of any, where none is given.
  std::uint32_t owner(std::optional<std::uint16_t> slot) const;
  // All that own slots.
  std::vector<std::uint32_t> owners() const;

  void move(std::uint16_t slot, std::uint32_t to);
  // The reply to CLUSTER SLOTS. kIo where it is none.
  Status take(const RespValue& slots, const RedisNode& from);

 private:
  mutable std::mutex mutex_;           // guards what follows
  std::vector<RedisNode> nodes_;       // that were ever heard of
  std::vector<std::uint32_t> owners_;  // of slots; empty where it is no cluster
};

}  // namespace shale
