// Reading a blob from Redis.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tiers/redis/redis_replies.h"

namespace shale {

using Lane = RedisClient::Lane;
using Kind = RespValue::Kind;

// Its calls share a thread.
class RedisBlobs::ReadJob : public std::enable_shared_from_this<ReadJob> {
 public:
  ReadJob(RedisBlobs& blobs, const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done)
      : blobs_(blobs), id_(id), range_(range), done_(std::move(done)), deadline_s_(blobs.client_.deadline_s()) {}

  // The head, and with it the first piece, which is all of most.
  void start() {
    left_ = range_.whole() ? 2 : 1;
    const std::string key = blobs_.key(id_.object), field = redis_field(id_.part);
    send(std::array<std::string_view, 3>{"HGET", key, field}, [this](Result<RespValue> reply) {
      head_reply_ = std::move(reply);
      head_ = head_of(head_reply_);
      ask_early();
    });
    if (!range_.whole()) return;
    const std::string piece = blobs_.piece_key(id_, 0);
    send(
        std::array<std::string_view, 2>{"GET", piece}, [this](Result<RespValue> reply) { first_ = std::move(reply); },
        [this](std::size_t bytes) { return place(0, bytes); });
  }

 private:
  void send(std::span<const std::string_view> arguments, std::function<void(Result<RespValue>)> note,
            RespParser::Place place = {}) {
    auto call = redis_call(
        arguments,
        [self = shared_from_this(), note = std::move(note)](Result<RespValue> reply) {
          note(std::move(reply));
          if (--self->left_ == 0) self->settle();
        },
        std::move(place));
    call->deadline_s = deadline_s_;
    blobs_.client_.send(Lane::kReads, std::move(call));
  }

  std::uint64_t begin() const { return range_.offset; }
  std::uint64_t bytes_wanted() const { return range_.whole() ? (*head_)->bytes : range_.bytes; }
  // What of a piece is wanted: from where in it, and how many bytes.
  BlobRange of_piece(std::uint64_t piece) const {
    const std::uint64_t start = piece * kRedisPieceBytes;
    const std::uint64_t from = std::max(begin(), start);
    const std::uint64_t to = std::min(begin() + bytes_wanted(), start + kRedisPieceBytes);
    return {from - start, to - from};
  }
  std::span<std::byte> target(std::uint64_t piece) {
    if (!buffer_) buffer_ = blobs_.buffers_->get(bytes_wanted());
    const BlobRange range = of_piece(piece);
    return buffer_->bytes().subspan(piece * kRedisPieceBytes + range.offset - begin(), range.bytes);
  }
  // Right where it belongs, if that is known already.
  std::span<std::byte> place(std::uint64_t piece, std::size_t bytes) {
    if (!head_ || !*head_ || (*head_)->inlined || of_piece(piece).bytes != bytes) return {};
    try {
      return target(piece);
    } catch (const std::bad_alloc&) {
      return {};
    }
  }

  void settle() {
    try {
      Result<bool> done = go_on();
      if (done && !*done) return;
      if (!done) return done_(std::unexpected(std::move(done).error()));
    } catch (const std::bad_alloc&) {
      return done_(fail(ErrorCode::kIo, "there is no memory for {}", to_string(id_)));
    }
    done_(BlobBytes(std::move(buffer_)));
  }

  // Whether all is there; pieces that are to come have been asked for where it is not.
  Result<bool> go_on() {
    if (!head_) return std::unexpected(head_.error());
    if (!*head_) return missing();
    const RedisHead& head = **head_;
    if (!range_.whole() && (range_.offset > head.bytes || range_.bytes > head.bytes - range_.offset)) {
      return fail(ErrorCode::kCorrupt, "{} has {} bytes, {} from {} on were asked for", to_string(id_), head.bytes,
                  range_.bytes, range_.offset);
    }
    if (head.inlined) {
      buffer_ = blobs_.buffers_->get(bytes_wanted());
      std::memcpy(buffer_->data(), head.inlined->data() + begin(), bytes_wanted());
      return true;
    }
    if (first_) SHALE_TRY(take(0, *std::exchange(first_, std::nullopt)));
    if (failed_) return std::unexpected(*failed_);
    if (std::exchange(asked_, true)) return true;
    if (!buffer_) buffer_ = blobs_.buffers_->get(bytes_wanted());
    ask_for_rest();
    return left_ == 0;
  }

  // For what follows the first piece, while that is still to come.
  void ask_early() {
    if (!range_.whole() || !head_ || !*head_ || (*head_)->bytes <= kRedisPieceBytes) return;
    try {
      buffer_ = blobs_.buffers_->get(bytes_wanted());
    } catch (const std::bad_alloc&) {
      return;
    }
    asked_ = true;
    ask_for_rest();
  }

  void ask_for_rest() {
    const std::uint64_t first = range_.whole() ? 1 : begin() / kRedisPieceBytes;
    const std::uint64_t last = bytes_wanted() == 0 ? first : pieces_of(begin() + bytes_wanted());
    if (first >= last) return;
    left_ += static_cast<unsigned>(last - first);
    for (std::uint64_t piece = first; piece < last; ++piece) {
      const std::string key = blobs_.piece_key(id_, piece);
      const BlobRange range = of_piece(piece);
      const std::string from = std::to_string(range.offset), to = std::to_string(range.offset + range.bytes - 1);
      const auto note = [this, piece](Result<RespValue> reply) {
        if (const Status taken = take(piece, std::move(reply)); !taken && !failed_) failed_ = taken.error();
      };
      const auto place = [this, piece](std::size_t bytes) { return this->place(piece, bytes); };
      if (range_.whole()) {
        send(std::array<std::string_view, 2>{"GET", key}, note, place);
      } else {
        send(std::array<std::string_view, 4>{"GETRANGE", key, from, to}, note, place);
      }
    }
  }

  Status take(std::uint64_t piece, Result<RespValue> reply) {
    if (!reply) return std::unexpected(reply.error());
    if (reply->kind == Kind::kNull || (reply->kind == Kind::kBulk && reply->integer == 0)) return evicted();
    if (reply->kind != Kind::kBulk) return strange("GET");
    if (reply->placed) return {};
    const std::span<std::byte> to = target(piece);
    if (reply->text.size() != to.size()) {
      return fail(ErrorCode::kCorrupt, "piece {} of {} is not as long as it was written", piece, to_string(id_));
    }
    std::memcpy(to.data(), reply->text.data(), to.size());
    return {};
  }

  // The server made room. The field goes too, so that the blob can be written again and nobody counts on it.
  std::unexpected<Error> evicted() {
    const std::string key = blobs_.key(id_.object), field = redis_field(id_.part);
    auto call = redis_call(std::array<std::string_view, 3>{"HDEL", key, field}, [](const auto&) {});
    call->deadline_s = deadline_s_;
    blobs_.client_.send(Lane::kReads, std::move(call));
    return missing();
  }
  std::unexpected<Error> missing() const {
    return fail(ErrorCode::kNotFound, "{} is not on the server", to_string(id_));
  }

  RedisBlobs& blobs_;
  const BlobId id_;
  const BlobRange range_;
  const std::function<void(Result<BlobBytes>)> done_;
  const double deadline_s_;
  Result<RespValue> head_reply_;
  Result<std::optional<RedisHead>> head_;   // refers to it
  std::optional<Result<RespValue>> first_;  // piece's reply
  bool asked_ = false;                      // for what follows the first piece
  unsigned left_ = 0;                       // replies
  std::optional<Error> failed_;
  std::shared_ptr<AlignedBuffer> buffer_;  // of what is wanted
};

void RedisBlobs::read(const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done) {
  std::make_shared<ReadJob>(*this, id, range, std::move(done))->start();
}

}  // namespace shale
