// A Redis server, or a cluster of them: commands go to the node that has their key's slot, over few connections that
// few threads serve, and follow where it moves.
//
//   callers ──> RedisClient ──slot──> Lane (a thread) ──> RedisLink per node ──> server
//
// A cluster is found out by its redirections (MOVED, ASK): https://redis.io/docs/reference/cluster-spec.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tiers/redis/redis_link.h"

namespace shale {

// A call without a payload, about the key that is its second argument.
std::unique_ptr<RedisCall> redis_call(std::span<const std::string_view> arguments,
                                      std::function<void(Result<RespValue>)> done, RespParser::Place place = {});

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

// Thread-safe.
class RedisClient {
 public:
  // Calls of one lane share connections and a thread, so that those of another do not wait for them.
  enum class Lane : std::uint8_t { kQuestions, kReads, kWrites };

  // Connects when there is something to say.
  RedisClient(RedisNode seed, RedisAccess access, const Clock& clock);
  // What is in flight is cancelled.
  ~RedisClient();

  // To the node that has the call's slot. What the server answers by an error is one: kFull where it has no room, else
  // kIo.
  void send(Lane lane, std::unique_ptr<RedisCall> call);
  // Blocks until all are answered, on the lane of questions; by keys as above, or all by one node.
  using Command = std::vector<std::string>;
  std::vector<Result<RespValue>> ask(std::span<const Command> commands);
  std::vector<Result<RespValue>> ask(std::span<const Command> commands, const RedisNode& node);
  // The nodes that hold keys, as they say themselves. Blocks.
  Result<std::vector<RedisNode>> holders();

 private:
  class Worker;
  using Replies = std::vector<Result<RespValue>>;
  Replies ask(std::span<const Command> commands, std::optional<std::uint32_t> node);
  std::uint32_t node_of(const RedisCall& call) const;
  std::optional<std::uint32_t> number_of(const RedisNode& node);
  void send_to(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call);
  // On a worker's thread.
  void replied(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, RespValue value);
  // Asks another node than the one that failed, or that moved a slot away, which has which; no more than once a second.
  void refresh(std::uint32_t not_from);
  Status take_slots(const RespValue& slots, const RedisNode& from);

  const RedisAccess access_;
  const Clock& clock_;
  mutable std::mutex mutex_;           // guards what follows
  std::vector<RedisNode> nodes_;       // that were ever heard of; the seed first
  std::vector<std::uint32_t> owners_;  // of slots: numbers of nodes; empty where it is no cluster, as far as is known
  double refreshed_s_ = -1e9;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace shale
