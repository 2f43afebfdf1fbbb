// One connection to a Redis server: commands go out one behind another, replies come in their order.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "io/net_socket.h"
#include "io/resp.h"
#include "tier/breaker.h"
#include "tier/tier.h"

namespace shale {

// Settings that all connections to a server, or to the nodes of a cluster, have in common.
struct RedisAccess {
  std::string user, password;                  // empty: none
  unsigned database = 0;                       // a cluster has 0 alone
  double timeout_s = 2;                        // for the next byte, where an answer is owed
  double deadline_s = 10;                      // for an operation: connections, redirections and all other attempts
  std::shared_ptr<const TlsContext> tls = {};  // null: without
};

struct RedisNode {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const RedisNode&) const = default;
};

// A command, and what becomes of its reply.
struct RedisCall {
  RespCommand command;
  BlobBytes owner = {};                         // of the payload
  std::span<const std::byte> payload = {};      // sent between the command's head and tail
  std::optional<std::uint16_t> slot = {};       // of the cluster, that its key is in; none: any node will do
  RespParser::Place place = {};                 // of its reply, where that is a string; may be asked again
  std::function<void(Result<RespValue>)> done;  // once, on the thread of the connection
  bool asking = false;                          // sent behind ASKING
  bool may_be_refused = false;                  // of what is said when a connection begins: it goes on without
  std::optional<Breaker::Ticket> ticket = {};   // of its node's breaker, where there is one
  unsigned tries = 0, redirections = 0, pauses = 0;
  double pause_share = 1;  // of each pause, at random; calls of an operation have the same, and so stay in their order
  std::string put_off = {};  // what a server last said that was asked again, told with a later failure
  double deadline_s = std::numeric_limits<double>::infinity();  // by the clock: when it is given up
  // The node, by number, where it is not to be sent again, and what happened there.
  std::optional<std::pair<std::uint32_t, Error>> failed_at = {};
};

inline constexpr std::size_t kSaidBytes = 300;  // of a server's words in errors
// What a node answered to a call: kFull where its memory is, else kIo.
Error said_by(const RedisNode& node, const std::string& message);

// One thread.
class RedisLink {
 public:
  // Takes what became of calls: replies, errors that the server says among them, or why there is none.
  using OnReply = std::function<void(std::unique_ptr<RedisCall>, Result<RespValue>)>;

  // What it asks for counts as used by somebody; or as looked at only, where the server can tell that apart.
  enum class Touch : std::uint8_t { kUses, kLooks };

  // `on_lost`: the connection was, or none came about. Before what was on it is answered: then its owner may go.
  RedisLink(RedisNode node, const RedisAccess& access, Touch touch, const Clock& clock, OnReply on_reply,
            std::function<void()> on_lost);
  ~RedisLink() { end_all({ErrorCode::kCancelled, "closing"}); }

  void send(std::unique_ptr<RedisCall> call);
  // The descriptor for poll(), negative where there is none, and what to wait for.
  int fd() const { return socket_ ? socket_->fd() : -1; }
  bool wants_write() const {
    return socket_ && (socket_->wants_write() || (may_send_next() && !socket_->waits_to_read()));
  }
  // When something may have to be given up; infinity where no answer is owed.
  double overdue_s() const;
  // Moves what can be moved; gives up what is overdue.
  void step();

 private:
  void connect();
  void greet();
  void greet(std::initializer_list<std::string_view> arguments, bool may_be_refused = false);
  bool may_send_next() const { return !out_.empty() && (out_offset_ > 0 || may_send(*out_.front(), blobs_owed())); }
  bool may_send(const RedisCall& call, std::size_t blobs_ahead) const;
  std::size_t blobs_owed() const;
  Status write();
  Status read();
  void wrote(std::size_t bytes);
  Status reply(RespValue value);
  // Calls in flight are tried once more on another connection, so that an idle one that the server closed costs nobody;
  // calls that fail again fail for good.
  void lost(const Error& error);
  // Gives up what has reached its deadline.
  void expire();
  void fail_all(const Error& error);
  void end_all(const Error& error);

  const RedisNode node_;
  const RedisAccess& access_;
  const Touch touch_;
  const Clock& clock_;
  const OnReply on_reply_;
  const std::function<void()> on_lost_;
  std::optional<NetSocket> socket_;
  RespParser parser_;
  std::deque<std::unique_ptr<RedisCall>> out_, sent_;
  std::size_t out_offset_ = 0;    // bytes of out_.front() that went out
  std::uint64_t blob_bytes_ = 0;  // of the longest reply of late that had a place of its own
  unsigned greetings_ = 0;        // whose replies come first
  double owed_since_s_ = 0;       // of what is in flight, or when a byte last moved
  double earliest_s_ = std::numeric_limits<double>::infinity();  // no deadline of what is in flight is before
  std::vector<std::byte> scratch_;
};

}  // namespace shale
