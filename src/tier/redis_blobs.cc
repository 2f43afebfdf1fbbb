#include "tier/redis_blobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

namespace shale {
namespace {

using Lane = RedisClient::Lane;
using Kind = RespValue::Kind;

constexpr std::size_t kSpareBufferBytes = std::size_t{64} << 20;
constexpr std::uint64_t kBlobBytesMax = std::uint64_t{4} << 30;
constexpr std::uint64_t kMemoryShare = 4;  // a blob takes no more than one of so many parts of the server's memory
constexpr std::size_t kAskedAtOnce = 512;
constexpr char kInlined = 'i', kPieces = 'p';  // how a field's value begins
constexpr std::string_view kManifest = "manifest";

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::uint64_t pieces_of(std::uint64_t bytes) { return (bytes + kRedisPieceBytes - 1) / kRedisPieceBytes; }

std::unexpected<Error> strange(std::string_view to) {
  return fail(ErrorCode::kIo, "the server's answer to {} is none", to);
}

Result<std::int64_t> integer_of(const Result<RespValue>& reply, std::string_view to) {
  if (!reply) return std::unexpected(reply.error());
  if (reply->kind != Kind::kInteger) return strange(to);
  return reply->integer;
}

// Nothing where the field is not there.
Result<std::optional<RedisHead>> head_of(const Result<RespValue>& reply) {
  if (!reply) return std::unexpected(reply.error());
  if (reply->kind == Kind::kNull) return std::nullopt;
  if (reply->kind != Kind::kBulk) return strange("HGET");
  SHALE_ASSIGN(const RedisHead head, parse_redis_head(reply->text));
  return head;
}

}  // namespace

std::string redis_head(std::uint64_t bytes) {
  std::string head(1 + sizeof bytes, kPieces);
  std::memcpy(head.data() + 1, &bytes, sizeof bytes);
  return head;
}

Result<RedisHead> parse_redis_head(std::string_view value) {
  RedisHead head;
  if (value.starts_with(kInlined) && value.size() - 1 <= kRedisInlineBytes) {
    head.inlined = value.substr(1);
    head.bytes = head.inlined->size();
    return head;
  }
  if (value.starts_with(kPieces) && value.size() == 1 + sizeof head.bytes) {
    std::memcpy(&head.bytes, value.data() + 1, sizeof head.bytes);
    if (head.bytes > kRedisInlineBytes && head.bytes <= kBlobBytesMax) return head;
  }
  return fail(ErrorCode::kCorrupt, "the field of a blob holds {} bytes that are not what this version writes",
              value.size());
}

std::string redis_field(std::uint32_t part) {
  return part == BlobId::kManifest ? std::string(kManifest) : std::to_string(part);
}

std::optional<std::uint32_t> parse_redis_field(std::string_view field) {
  if (field == kManifest) return BlobId::kManifest;
  std::uint32_t part = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), part);
  if (error != std::errc() || redis_field(part) != field) return std::nullopt;
  return part;
}

// Its calls share a thread.
class RedisBlobs::ReadJob : public std::enable_shared_from_this<ReadJob> {
 public:
  ReadJob(RedisBlobs& blobs, const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done)
      : blobs_(blobs), id_(id), range_(range), done_(std::move(done)) {}

  // The head, and with it the first piece, which is all of most.
  void start() {
    left_ = range_.whole() ? 2 : 1;
    const std::string key = blobs_.key(id_.object), field = redis_field(id_.part);
    send(std::array<std::string_view, 3>{"HGET", key, field}, [this](Result<RespValue> reply) {
      head_reply_ = std::move(reply);
      head_ = head_of(head_reply_);
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
    blobs_.client_.send(Lane::kReads, redis_call(
                                          arguments,
                                          [self = shared_from_this(), note = std::move(note)](Result<RespValue> reply) {
                                            note(std::move(reply));
                                            if (--self->left_ == 0) self->settle();
                                          },
                                          std::move(place)));
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

  void ask_for_rest() {
    const std::uint64_t first = range_.whole() ? 1 : begin() / kRedisPieceBytes;
    const std::uint64_t last = bytes_wanted() == 0 ? first : pieces_of(begin() + bytes_wanted());
    if (first >= last) return;
    left_ = static_cast<unsigned>(last - first);
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
    blobs_.client_.send(Lane::kReads,
                        redis_call(std::array<std::string_view, 3>{"HDEL", key, field}, [](const auto&) {}));
    return missing();
  }
  std::unexpected<Error> missing() const {
    return fail(ErrorCode::kNotFound, "{} is not on the server", to_string(id_));
  }

  RedisBlobs& blobs_;
  const BlobId id_;
  const BlobRange range_;
  const std::function<void(Result<BlobBytes>)> done_;
  Result<RespValue> head_reply_;
  Result<std::optional<RedisHead>> head_;   // refers to it
  std::optional<Result<RespValue>> first_;  // piece's reply
  bool asked_ = false;                      // for all pieces
  unsigned left_ = 0;                       // replies
  std::optional<Error> failed_;
  std::shared_ptr<AlignedBuffer> buffer_;  // of what is wanted
};

// Its calls share a thread.
class RedisBlobs::WriteJob : public std::enable_shared_from_this<WriteJob> {
 public:
  WriteJob(RedisBlobs& blobs, const BlobId& id, BlobBytes bytes, std::function<void(Result<bool>)> done)
      : blobs_(blobs),
        id_(id),
        key_(blobs.key(id.object)),
        field_(redis_field(id.part)),
        bytes_(std::move(bytes)),
        done_(std::move(done)) {}

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
    const bool inlined = bytes_->size() <= kRedisInlineBytes;
    const std::string_view text(reinterpret_cast<const char*>(bytes_->data()), bytes_->size());
    const std::string head = inlined ? kInlined + std::string(text) : redis_head(bytes_->size());
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
    const auto forget = [this](std::span<const std::string_view> arguments) {
      blobs_.client_.send(Lane::kWrites, redis_call(arguments, [](const auto&) {}));
    };
    if (failed_->code == ErrorCode::kFull) {
      if (created_) forget(std::array<std::string_view, 3>{"HDEL", key_, field_});
      for (const std::string& key : made_) forget(std::array<std::string_view, 2>{"UNLINK", key});
    }
    done_(std::unexpected(*failed_));
  }

  RedisBlobs& blobs_;
  const BlobId id_;
  const std::string key_, field_;
  const BlobBytes bytes_;
  const std::function<void(Result<bool>)> done_;
  std::int64_t found_ = 0;  // keys and fields
  unsigned left_ = 0;       // replies
  bool writing_ = false, created_ = false;
  std::vector<std::string> made_;  // keys of pieces
  std::optional<Error> failed_;
};

RedisBlobs::RedisBlobs(std::string prefix, RedisNode node, RedisAccess access, const Clock& clock)
    : prefix_(std::move(prefix)),
      buffers_(BufferPool::make(kSpareBufferBytes)),
      client_(std::move(node), std::move(access), clock) {}

// In braces, so that all of an object has one slot of a cluster.
std::string RedisBlobs::key(const Hash128& object) const { return fmt::format("{}:{{{}}}", prefix_, object.hex()); }

std::string RedisBlobs::piece_key(const BlobId& id, std::uint64_t piece) const {
  return fmt::format("{}:{}:{}", key(id.object), redis_field(id.part), piece);
}

std::optional<Hash128> RedisBlobs::object_of(std::string_view key) const {
  const std::string open = prefix_ + ":{";
  if (!key.starts_with(open) || !key.ends_with('}')) return std::nullopt;
  const auto object = Hash128::parse(key.substr(open.size(), key.size() - open.size() - 1));
  return object ? std::optional(*object) : std::nullopt;
}

Status RedisBlobs::greet() {
  const auto nodes = client_.holders();
  if (!nodes) {
    const std::string& said = nodes.error().message;
    const bool password = said.find("NOAUTH") != std::string::npos || said.find("WRONGPASS") != std::string::npos;
    return std::unexpected(Error{password ? ErrorCode::kInvalidArgument : nodes.error().code, said});
  }
  const std::vector<RedisClient::Command> question{{"INFO", "memory"}};
  const auto told = std::move(client_.ask(question, nodes->front()).front());
  constexpr std::string_view kName = "\nmaxmemory:";
  const std::size_t at = told ? told->text.find(kName) : std::string::npos;
  if (at == std::string::npos) return {};
  std::uint64_t bytes = 0;
  const char* digits = told->text.data() + at + kName.size();
  if (std::from_chars(digits, told->text.data() + told->text.size(), bytes).ec == std::errc())
    memory_bytes_max_ = bytes;
  return {};
}

void RedisBlobs::read(const BlobId& id, const BlobRange& range, std::function<void(Result<BlobBytes>)> done) {
  std::make_shared<ReadJob>(*this, id, range, std::move(done))->start();
}

// One that is larger than the memory would make the server evict everything else, and then itself.
void RedisBlobs::write(const BlobId& id, BlobBytes bytes, std::function<void(Result<bool>)> done) {
  const std::uint64_t memory = memory_bytes_max_;
  if (bytes->size() > kBlobBytesMax || (memory > 0 && bytes->size() > memory / kMemoryShare)) {
    return done(fail(ErrorCode::kFull, "{} has {} bytes, which is too much for a server with {}", to_string(id),
                     bytes->size(), memory));
  }
  std::make_shared<WriteJob>(*this, id, std::move(bytes), std::move(done))->start();
}

Result<std::optional<std::uint64_t>> RedisBlobs::remove(const BlobId& id) {
  const RedisClient::Command get{"HGET", key(id.object), redis_field(id.part)};
  const auto reply = std::move(client_.ask({&get, 1}).front());
  const auto head = head_of(reply);
  if (!head && head.error().code != ErrorCode::kCorrupt) return std::unexpected(head.error());
  if (head && !*head) return std::nullopt;
  const std::uint64_t bytes = head ? (*head)->bytes : 0;
  std::vector<RedisClient::Command> removal{{"HDEL", key(id.object), redis_field(id.part)}};
  RedisClient::Command pieces{"UNLINK"};
  for (std::uint64_t piece = 0; piece < pieces_of(bytes); ++piece) pieces.push_back(piece_key(id, piece));
  if (bytes > kRedisInlineBytes) removal.push_back(std::move(pieces));
  const auto replies = client_.ask(removal);
  SHALE_ASSIGN(const std::int64_t gone, integer_of(replies.front(), "HDEL"));
  SHALE_TRY(integer_of(replies.back(), "UNLINK"));
  return gone == 1 ? std::optional(bytes) : std::nullopt;
}

Result<std::vector<std::string>> RedisBlobs::keys_on(const RedisNode& node) {
  std::vector<std::string> keys;
  std::string cursor = "0";
  do {
    const RedisClient::Command scan{"SCAN", cursor, "MATCH", prefix_ + ":{*}", "COUNT", "1000", "TYPE", "hash"};
    auto reply = std::move(client_.ask({&scan, 1}, node).front());
    if (!reply) return std::unexpected(reply.error());
    if (reply->items.size() != 2) return strange("SCAN");
    cursor = reply->items[0].text;
    for (RespValue& key : reply->items[1].items) keys.push_back(std::move(key.text));
  } while (cursor != "0" && !cursor.empty());
  return keys;
}

Result<std::vector<BlobId>> RedisBlobs::list() {
  SHALE_ASSIGN(const auto nodes, client_.holders());
  std::vector<Hash128> objects;
  for (const RedisNode& node : nodes) {
    SHALE_ASSIGN(const auto keys, keys_on(node));
    for (const std::string& key : keys) {
      if (const auto object = object_of(key)) objects.push_back(*object);
    }
  }
  std::ranges::sort(objects);
  objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
  SHALE_ASSIGN(const auto found, parts(objects));
  std::vector<BlobId> ids;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    for (const std::uint32_t part : found[i]) ids.push_back({objects[i], part});
  }
  std::ranges::sort(ids);
  return ids;
}

Result<std::vector<std::vector<std::uint32_t>>> RedisBlobs::parts(std::span<const Hash128> objects) {
  std::vector<std::vector<std::uint32_t>> found;
  for (std::size_t first = 0; first < objects.size(); first += kAskedAtOnce) {
    std::vector<RedisClient::Command> questions;
    for (const Hash128& object : objects.subspan(first, std::min(kAskedAtOnce, objects.size() - first))) {
      questions.push_back({"HKEYS", key(object)});
    }
    for (const auto& reply : client_.ask(questions)) {
      if (!reply) return std::unexpected(reply.error());
      auto& parts = found.emplace_back();
      for (const RespValue& field : reply->items) {
        if (const auto part = parse_redis_field(field.text)) parts.push_back(*part);
      }
    }
  }
  return found;
}

Result<std::vector<std::optional<std::uint64_t>>> RedisBlobs::sizes(std::span<const BlobId> ids) {
  std::vector<std::optional<std::uint64_t>> sizes;
  for (std::size_t first = 0; first < ids.size(); first += kAskedAtOnce) {
    std::vector<RedisClient::Command> questions;
    for (const BlobId& id : ids.subspan(first, std::min(kAskedAtOnce, ids.size() - first))) {
      questions.push_back({"HGET", key(id.object), redis_field(id.part)});
      questions.push_back({"EXISTS", piece_key(id, 0)});
    }
    const auto replies = client_.ask(questions);
    for (std::size_t i = 0; i < replies.size(); i += 2) {
      const auto head = head_of(replies[i]);
      if (!head && head.error().code != ErrorCode::kCorrupt) return std::unexpected(head.error());
      SHALE_ASSIGN(const std::int64_t pieces, integer_of(replies[i + 1], "EXISTS"));
      const bool there = head && *head && ((*head)->inlined || pieces > 0);
      sizes.push_back(there ? std::optional((*head)->bytes) : std::nullopt);
    }
  }
  return sizes;
}

Result<double> RedisBlobs::idle_s(const BlobId& id) {
  const RedisClient::Command question{"OBJECT", "IDLETIME", key(id.object)};
  const auto reply = std::move(client_.ask({&question, 1}).front());
  return reply && reply->kind == Kind::kInteger ? static_cast<double>(reply->integer) : 0.0;
}

}  // namespace shale
