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

  // The head, and with it the pieces that can be known without.
  void start() {
    std::vector<std::unique_ptr<RedisCall>> calls;
    const std::string key = blobs_.key(id_.object), field = redis_field(id_.part);
    calls.push_back(call(std::array<std::string_view, 3>{"HGET", key, field}, [this](Result<RespValue> reply) {
      head_reply_ = std::move(reply);
      head_ = head_of(head_reply_);
      ask_for_rest();
    }));
    for (std::uint64_t piece = first_piece(); piece < early_end(); ++piece) calls.push_back(piece_call(piece));
    ask(calls);
  }

 private:
  std::unique_ptr<RedisCall> call(std::span<const std::string_view> arguments,
                                  std::function<void(Result<RespValue>)> note, RespParser::Place place = {}) {
    auto call = redis_call(
        arguments,
        [self = shared_from_this(), note = std::move(note)](Result<RespValue> reply) {
          note(std::move(reply));
          if (--self->left_ == 0) self->settle();
        },
        std::move(place));
    call->deadline_s = deadline_s_;
    call->pause_share = pause_share_;
    return call;
  }
  std::unique_ptr<RedisCall> piece_call(std::uint64_t piece) {
    const std::string key = blobs_.piece_key(id_, piece);
    const auto note = [this, piece](Result<RespValue> reply) { came(piece, std::move(reply)); };
    const auto place = [this, piece](std::size_t bytes) { return this->place(piece, bytes); };
    if (range_.whole()) return call(std::array<std::string_view, 2>{"GET", key}, note, place);
    const BlobRange range = of_piece(piece);
    const std::string from = std::to_string(range.offset), to = std::to_string(range.offset + range.bytes - 1);
    return call(std::array<std::string_view, 4>{"GETRANGE", key, from, to}, note, place);
  }
  void ask(std::span<std::unique_ptr<RedisCall>> calls) {
    left_ += static_cast<unsigned>(calls.size());
    blobs_.client_.send(Lane::kReads, calls);
  }

  std::uint64_t begin() const { return range_.offset; }
  std::uint64_t bytes_wanted() const { return range_.whole() ? (*head_)->bytes : range_.bytes; }
  std::uint64_t first_piece() const { return begin() / kRedisPieceBytes; }
  std::uint64_t end_piece() const { return bytes_wanted() == 0 ? first_piece() : pieces_of(begin() + bytes_wanted()); }
  // The first piece is all of most whole blobs. For a long range the head is to say first that it lies in the blob.
  std::uint64_t early_end() const {
    if (range_.whole()) return 1;
    return range_.bytes <= kRedisPieceBytes ? end_piece() : first_piece();
  }
  // What of a piece is wanted: from where in it, and how many bytes.
  BlobRange of_piece(std::uint64_t piece) const {
    const std::uint64_t start = piece * kRedisPieceBytes;
    const std::uint64_t from = std::max(begin(), start);
    const std::uint64_t to = std::min(begin() + bytes_wanted(), start + kRedisPieceBytes);
    return {from - start, to - from};
  }
  std::span<std::byte> target(std::uint64_t piece) {
    const BlobRange range = of_piece(piece);
    return buffer_->bytes().subspan(piece * kRedisPieceBytes + range.offset - begin(), range.bytes);
  }
  // Right where it belongs, if that is known already.
  std::span<std::byte> place(std::uint64_t piece, std::size_t bytes) {
    return buffer_ && of_piece(piece).bytes == bytes ? target(piece) : std::span<std::byte>();
  }

  // Whether the head says that there are pieces, and the range is in them.
  Result<bool> has_pieces() const {
    if (!head_) return std::unexpected(head_.error());
    if (!*head_) return missing();
    const RedisHead& head = **head_;
    if (!range_.whole() && (range_.offset > head.bytes || range_.bytes > head.bytes - range_.offset)) {
      return fail(ErrorCode::kCorrupt, "{} has {} bytes, {} from {} on were asked for", to_string(id_), head.bytes,
                  range_.bytes, range_.offset);
    }
    return !head.inlined;
  }

  void ask_for_rest() {
    if (!has_pieces().value_or(false)) return;
    try {
      buffer_ = blobs_.buffers_->get(bytes_wanted());
    } catch (const std::bad_alloc&) {
      return;
    }
    std::vector<std::unique_ptr<RedisCall>> calls;
    for (std::uint64_t piece = early_end(); piece < end_piece(); ++piece) calls.push_back(piece_call(piece));
    if (!calls.empty()) ask(calls);
  }

  void came(std::uint64_t piece, Result<RespValue> reply) {
    if (!buffer_) {
      before_head_.emplace_back(piece, std::move(reply));
    } else if (Status taken = take(piece, reply); !taken && !failed_) {
      failed_ = std::move(taken).error();
    }
  }

  void settle() {
    Status gathered;
    try {
      gathered = gather();
    } catch (const std::bad_alloc&) {
      gathered = no_memory();
    }
    if (!gathered) return done_(std::unexpected(std::move(gathered).error()));
    done_(BlobBytes(std::move(buffer_)));
  }

  Status gather() {
    SHALE_ASSIGN(const bool in_pieces, has_pieces());
    if (!in_pieces) {
      buffer_ = blobs_.buffers_->get(bytes_wanted());
      std::memcpy(buffer_->data(), (*head_)->inlined->data() + begin(), bytes_wanted());
      return {};
    }
    if (!buffer_) return no_memory();
    for (const auto& [piece, reply] : before_head_) {
      if (is_gone(reply)) return missing();  // it may have been written since
      SHALE_TRY(take(piece, reply));
    }
    if (failed_) return std::unexpected(*failed_);
    return {};
  }

  static bool is_gone(const Result<RespValue>& reply) {
    return reply && (reply->kind == Kind::kNull || (reply->kind == Kind::kBulk && reply->integer == 0));
  }

  Status take(std::uint64_t piece, const Result<RespValue>& reply) {
    if (!reply) return std::unexpected(reply.error());
    if (is_gone(reply)) return evicted();
    if (reply->kind != Kind::kBulk) return strange("GET");
    if (reply->placed) return {};
    const std::span<std::byte> to = target(piece);
    if (reply->text.size() != to.size()) {
      return fail(ErrorCode::kCorrupt, "piece {} of {} is not as long as it was written", piece, to_string(id_));
    }
    std::memcpy(to.data(), reply->text.data(), to.size());
    return {};
  }

  // The server evicted it. The field goes too, before anything else is asked, so that the blob can be written again and
  // nobody counts on it.
  std::unexpected<Error> evicted() {
    const std::string key = blobs_.key(id_.object), field = redis_field(id_.part);
    auto call = redis_call(std::array<std::string_view, 3>{"HDEL", key, field}, [](const auto&) {});
    call->deadline_s = deadline_s_;
    blobs_.client_.send(Lane::kQuestions, std::move(call));
    return missing();
  }
  std::unexpected<Error> no_memory() const { return fail(ErrorCode::kIo, "there is no memory for {}", to_string(id_)); }
  std::unexpected<Error> missing() const {
    return fail(ErrorCode::kNotFound, "{} is not on the server", to_string(id_));
  }

  RedisBlobs& blobs_;
  const BlobId id_;
  const BlobRange range_;
  const std::function<void(Result<BlobBytes>)> done_;
  const double deadline_s_;
  const double pause_share_ = random_pause_share();
  Result<RespValue> head_reply_;
  Result<std::optional<RedisHead>> head_;  // refers to it
  // Replies by number; also of blobs that have none, where they say nothing.
  std::vector<std::pair<std::uint64_t, Result<RespValue>>> before_head_;
  unsigned left_ = 0;  // replies
  std::optional<Error> failed_;
  std::shared_ptr<AlignedBuffer> buffer_;  // of what is wanted, once the head has told of pieces
};

void RedisBlobs::read(const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done) {
  std::make_shared<ReadJob>(*this, id, range, std::move(done))->start();
}

}  // namespace shale
