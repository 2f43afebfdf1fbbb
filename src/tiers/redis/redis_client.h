// A Redis server, or a cluster of them: commands go to the node that has their key's slot, over few connections that
// few threads serve, and follow where it moves.
//
//   callers ──> RedisClient ──slot──> Lane (a thread) ──> RedisLink per node ──> server
//
// A cluster is found out by its redirections (MOVED, ASK). Where a node is gone, or says that it cannot answer now, the
// others are asked who holds what, and calls go on there.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tier/breaker.h"
#include "tiers/redis/redis_slots.h"

namespace shale {

// A call without a payload, about the key that is its second argument.
std::unique_ptr<RedisCall> redis_call(std::span<const std::string_view> arguments,
                                      std::function<void(Result<RespValue>)> done, RespParser::Place place = {});

// What RedisCall::pause_share is for an operation: 0.5 to 1.
double random_pause_share();

// Whether the server says that it does not have the command, or not for this user.
bool refuses_command(const Error& error);

// Thread-safe.
class RedisClient {
 public:
  // Calls of one lane share connections and a thread, so that those of another do not wait for them.
  enum class Lane : std::uint8_t { kQuestions, kReads, kWrites };

  // Connects when there is something to say.
  RedisClient(RedisNode seed, RedisAccess access, const Clock& clock);
  // What is in flight is cancelled.
  ~RedisClient();

  // The time, by the clock, until which an operation that begins now may take.
  double deadline_s() const { return clock_.now_s() + access_.deadline_s; }
  // Takes the calls; to the nodes that have their slots, in their order and in one go. A server's error reply is an
  // error: kFull where it has no room, else kIo. A call that is not answered by its deadline is kIo, too.
  void send(Lane lane, std::span<std::unique_ptr<RedisCall>> calls);
  void send(Lane lane, std::unique_ptr<RedisCall> call) { send(lane, {&call, 1}); }
  // Blocks until all are answered, on the lane of questions; by keys as above, or all by one node. All have the same
  // deadline, as long from now as an operation may take or given.
  using Command = std::vector<std::string>;
  using Replies = std::vector<Result<RespValue>>;
  Replies ask(std::span<const Command> commands) { return ask(commands, deadline_s()); }
  Replies ask(std::span<const Command> commands, double deadline_s) { return ask(commands, deadline_s, std::nullopt); }
  Replies ask(std::span<const Command> commands, const RedisNode& node);
  // The nodes that hold keys, as they say themselves; the seed where it knows of no cluster. Blocks.
  Result<std::vector<RedisNode>> holders();

  // Whether it is a cluster, as far as is known. Each of its nodes has a breaker, so that one that is gone costs what
  // it held: calls for a node that is left alone are kBusy, at once.
  bool cluster() const { return slots_.cluster(); }
  // A cluster has the state of the node that does best, and the sums; and what ails any of them.
  BreakerState breakers() const;
  std::optional<Error> trouble() const;

 private:
  class Worker;
  Replies ask(std::span<const Command> commands, double deadline_s, std::optional<std::uint32_t> node);
  Worker& worker_of(Lane lane) const;
  // Called on a worker's thread, as the rest.
  void replied(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, Result<RespValue> reply);
  void answered_error(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, const std::string& message);
  void failed(Lane lane, std::uint32_t node, std::unique_ptr<RedisCall> call, const Error& error);
  // Null where it is no cluster.
  Breaker* breaker_of(std::uint32_t node);
  // Asks another node than that one, which failed or moved a slot away, who has which slots, unless somebody just did.
  void refresh(std::uint32_t not_from);

  const RedisAccess access_;
  const Clock& clock_;
  RedisSlots slots_;
  mutable std::mutex mutex_;  // guards what follows
  double refreshed_s_ = -1e9;
  std::map<std::uint32_t, std::unique_ptr<Breaker>> breakers_;  // of nodes that were asked; they stay
  std::array<std::unique_ptr<Worker>, 2> workers_;              // the first ends last: the other sends to it
};

}  // namespace shale
