// Writing a blob to Redis.
#include <algorithm>
#include <array>
#include <utility>

#include "tiers/redis/redis_replies.h"

namespace shale {
namespace {

using Lane = RedisClient::Lane;
using Kind = RespValue::Kind;

constexpr std::uint64_t kMemoryShare = 4;  // a blob takes no more than one of so many parts of the server's memory

}  // namespace

// Its calls share a thread.
class RedisBlobs::WriteJob : public std::enable_shared_from_this<WriteJob> {
 public:
  WriteJob(RedisBlobs& blobs, const BlobId& id, BlobBytes bytes, std::function<void(Result<bool>)> done)
      : blobs_(blobs),
        id_(id),
        key_(blobs.key(id.object)),
        field_(redis_field(id.part)),
        bytes_(std::move(bytes)),
        done_(std::move(done)),
        deadline_s_(blobs.client_.deadline_s()) {}

  // What is there already is not sent.
  void start() {
    if (bytes_->size() <= kRedisInlineBytes) return write_head();
    left_ = 2;
    send(std::array<std::string_view, 3>{"HEXISTS", key_, field_}, [this](const Result<RespValue>& reply) {
      const auto there = integer_of(reply, "HEXISTS");
      there ? static_cast<void>(found_ += *there) : note(there.error());
    });
    const std::vector<std::string> keys = piece_keys();
    std::vector<std::string_view> exists{"EXISTS"};
    exists.insert(exists.end(), keys.begin(), keys.end());
    send(exists, [this](const Result<RespValue>& reply) {
      const auto there = integer_of(reply, "EXISTS");
      there ? static_cast<void>(found_ += *there) : note(there.error());
    });
  }

 private:
  void send(std::span<const std::string_view> arguments, std::function<void(const Result<RespValue>&)> note) {
    send(redis_call(arguments, {}), std::move(note));
  }
  void send(std::unique_ptr<RedisCall> call, std::function<void(const Result<RespValue>&)> note) {
    call->done = [self = shared_from_this(), note = std::move(note)](const Result<RespValue>& reply) {
      note(reply);
      if (--self->left_ == 0) self->settle();
    };
    call->deadline_s = deadline_s_;
    call->pause_share = pause_share_;
    blobs_.client_.send(Lane::kWrites, std::move(call));
  }

  std::vector<std::string> piece_keys() const {
    std::vector<std::string> keys;
    for (std::uint64_t piece = 0; piece < pieces_of(bytes_->size()); ++piece) {
      keys.push_back(blobs_.piece_key(id_, piece));
    }
    return keys;
  }

  void settle() {
    if (writing_ || failed_) return finish();
    if (found_ == 1 + static_cast<std::int64_t>(pieces_of(bytes_->size()))) return done_(false);
    write_pieces();
  }

  // Pieces in order, the head behind them: who sees it sees them, unless the server had no room for one, which the head
  // then does not outlive, or the connection broke, which makes it a miss.
  void write_pieces() {
    const std::vector<std::string> keys = piece_keys();
    left_ = static_cast<unsigned>(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto call = std::make_unique<RedisCall>();
      call->slot = redis_slot(keys[i]);
      call->owner = bytes_;
      const std::size_t from = i * kRedisPieceBytes;
      call->payload = bytes_->bytes().subspan(from, std::min(kRedisPieceBytes, bytes_->size() - from));
      call->command = resp_command(std::array<std::string_view, 2>{"SET", keys[i]}, call->payload.size(),
                                   std::array<std::string_view, 1>{"NX"});
      send(std::move(call), [this, key = keys[i]](const Result<RespValue>& reply) {
        if (!reply) note(reply.error());
        if (reply && reply->kind == Kind::kText) made_.push_back(key);
      });
    }
    write_head();
  }

  void write_head() {
    writing_ = true;
    ++left_;
    const std::string head = redis_head(bytes_->bytes());
    send(std::array<std::string_view, 4>{"HSETNX", key_, field_, head}, [this](const Result<RespValue>& reply) {
      const auto created = integer_of(reply, "HSETNX");
      if (created) created_ = *created == 1;
      if (!created) note(created.error());
    });
  }

  void note(const Error& error) {
    if (!failed_) failed_ = error;
  }

  void finish() {
    if (!failed_) return done_(created_);
    const bool forget = !forgotten_ && failed_->code == ErrorCode::kFull && (created_ || !made_.empty());
    if (!forget) return done_(std::unexpected(*failed_));
    forgotten_ = true;  // and told of when that is answered
    left_ = (created_ ? 1 : 0) + static_cast<unsigned>(made_.size());
    const auto ignore = [](const Result<RespValue>&) {};
    if (created_) send(std::array<std::string_view, 3>{"HDEL", key_, field_}, ignore);
    for (const std::string& key : made_) send(std::array<std::string_view, 2>{"UNLINK", key}, ignore);
  }

  RedisBlobs& blobs_;
  const BlobId id_;
  const std::string key_, field_;
  const BlobBytes bytes_;
  const std::function<void(Result<bool>)> done_;
  const double deadline_s_;
  const double pause_share_ = random_pause_share();
  std::int64_t found_ = 0;  // keys and fields
  unsigned left_ = 0;       // replies
  bool writing_ = false, created_ = false, forgotten_ = false;
  std::vector<std::string> made_;  // keys of pieces
  std::optional<Error> failed_;
};

// One that is larger than the memory would make the server evict everything else, and then itself.
void RedisBlobs::write(const BlobId& id, BlobBytes bytes, std::function<void(Result<bool>)> done) {
  const std::uint64_t memory = memory_bytes_max_;
  if (bytes->size() > kRedisBlobBytesMax || (memory > 0 && bytes->size() > memory / kMemoryShare)) {
    return done(fail(ErrorCode::kFull, "{} has {} bytes, which is too much for a server with {}", to_string(id),
                     bytes->size(), memory));
  }
  std::make_shared<WriteJob>(*this, id, std::move(bytes), std::move(done))->start();
}

}  // namespace shale
