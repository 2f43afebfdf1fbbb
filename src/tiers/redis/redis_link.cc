#include "tiers/redis/redis_link.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/utf8.h"
#include "tiers/redis/redis_client.h"

namespace shale {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;
constexpr std::size_t kPiecesAtOnce = 48;  // of one write: three a command
// A server makes replies as soon as it has read what asks for them. More of them than its caches hold would lie in
// fresh memory, which it counts against its limit, too.
constexpr std::uint64_t kOwedBytesMax = 8 << 20;
constexpr double kLookAgainS = 0.05;  // whether another address of the host is to be tried
constexpr std::string_view kNoPasswordNeeded = "without any password configured";

// The pieces of a call, without its first `skip` bytes.
void add_pieces(const RedisCall& call, std::size_t skip, std::vector<iovec>& pieces) {
  const auto add = [&](const void* data, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (bytes > skipped) {
      pieces.push_back({const_cast<char*>(static_cast<const char*>(data)) + skipped, bytes - skipped});
    }
  };
  add(call.command.head.data(), call.command.head.size());
  add(call.payload.data(), call.payload.size());
  add(call.command.tail.data(), call.command.tail.size());
}

std::size_t bytes_of(const RedisCall& call) {
  return call.command.head.size() + call.payload.size() + call.command.tail.size();
}

}  // namespace

Error said_by(const RedisNode& node, const std::string& message) {
  const bool full = message.starts_with("OOM ");
  return {full ? ErrorCode::kFull : ErrorCode::kIo,
          fmt::format("{}:{} says: {}", node.host, node.port, printable(message, kSaidBytes))};
}

RedisLink::RedisLink(RedisNode node, const RedisAccess& access, Touch touch, const Clock& clock, OnReply on_reply,
                     std::function<void()> on_lost)
    : node_(std::move(node)),
      access_(access),
      touch_(touch),
      clock_(clock),
      on_reply_(std::move(on_reply)),
      on_lost_(std::move(on_lost)),
      scratch_(kScratchBytes) {}

void RedisLink::send(std::unique_ptr<RedisCall> call) {
  if (out_.empty() && sent_.empty()) owed_since_s_ = clock_.now_s();
  earliest_s_ = std::min(earliest_s_, call->deadline_s);
  out_.push_back(std::move(call));
  if (!socket_) connect();
}

double RedisLink::overdue_s() const {
  if (out_.empty() && sent_.empty()) return std::numeric_limits<double>::infinity();
  const double overdue_s = std::min(owed_since_s_ + access_.timeout_s, earliest_s_);
  return socket_ && socket_->has_other_addresses() ? std::min(overdue_s, clock_.now_s() + kLookAgainS) : overdue_s;
}

void RedisLink::connect() {
  auto socket = NetSocket::connect(node_.host, node_.port, access_.tls.get());
  if (!socket) return fail_all(socket.error());
  socket_ = std::move(*socket);
  parser_ = {};
  out_offset_ = 0;
  greetings_ = 0;
  owed_since_s_ = clock_.now_s();
  greet();
}

// The last comes first.
void RedisLink::greet() {
  if (touch_ == Touch::kLooks) greet({"CLIENT", "NO-TOUCH", "ON"}, true);  // of Redis 7.2
  if (access_.database != 0) greet({"SELECT", std::to_string(access_.database)});
  if (access_.password.empty()) return;
  if (access_.user.empty()) {
    greet({"AUTH", access_.password});
  } else {
    greet({"AUTH", access_.user, access_.password});
  }
}

// Ahead of everything else.
void RedisLink::greet(std::initializer_list<std::string_view> arguments, bool may_be_refused) {
  auto call = std::make_unique<RedisCall>();
  call->command = resp_command(arguments);
  call->tries = 1;
  call->may_be_refused = may_be_refused;
  call->done = [](const auto&) {};
  out_.push_front(std::move(call));
  ++greetings_;
}

void RedisLink::step() {
  if (!socket_) return;
  Status status = write();
  if (status) status = read();
  if (!status) lost(status.error());
  if (clock_.now_s() >= earliest_s_) expire();
  const bool owed = !out_.empty() || !sent_.empty();
  if (status && owed && clock_.now_s() >= owed_since_s_ + access_.timeout_s) {
    const Error silent{ErrorCode::kIo, fmt::format("{}:{} has not answered for {:.1f} s", node_.host, node_.port,
                                                   clock_.now_s() - owed_since_s_)};
    fail_all(silent);
  }
}

// How long a reply will be is not known: as the longest of late.
bool RedisLink::may_send(const RedisCall& call, std::size_t blobs_ahead) const {
  return !call.place || blobs_ahead == 0 || (blobs_ahead + 1) * blob_bytes_ <= kOwedBytesMax;
}

std::size_t RedisLink::blobs_owed() const {
  return static_cast<std::size_t>(std::ranges::count_if(sent_, [](const auto& call) { return bool(call->place); }));
}

Status RedisLink::write() {
  while (socket_ && may_send_next()) {
    std::vector<iovec> pieces;
    std::size_t owed = blobs_owed();
    for (std::size_t i = 0; i < out_.size() && pieces.size() < kPiecesAtOnce; ++i) {
      const std::size_t skip = i == 0 ? out_offset_ : 0;
      if (skip == 0 && !may_send(*out_[i], owed)) break;
      add_pieces(*out_[i], skip, pieces);
      owed += out_[i]->place ? 1 : 0;
    }
    SHALE_ASSIGN(const std::size_t bytes, socket_->write(pieces));
    if (bytes == 0) return {};
    wrote(bytes);
  }
  return {};
}

void RedisLink::wrote(std::size_t bytes) {
  out_offset_ += bytes;
  while (!out_.empty() && out_offset_ >= bytes_of(*out_.front())) {
    out_offset_ -= bytes_of(*out_.front());
    sent_.push_back(std::move(out_.front()));
    out_.pop_front();
  }
  if (sent_.empty()) owed_since_s_ = clock_.now_s();  // nothing can be answered before it has gone out
}

Status RedisLink::read() {
  while (socket_) {
    if (const auto place = parser_.open_place(); place.size() >= kScratchBytes) {
      SHALE_ASSIGN(const std::size_t bytes, socket_->read(place));
      if (bytes == 0) return {};
      parser_.received(bytes);
      owed_since_s_ = clock_.now_s();
      continue;
    }
    SHALE_ASSIGN(const std::size_t bytes, socket_->read(scratch_));
    if (bytes == 0) return {};
    owed_since_s_ = clock_.now_s();
    std::span<const std::byte> in = std::span(scratch_).first(bytes);
    while (socket_ && !in.empty()) {
      if (sent_.empty()) return fail(ErrorCode::kIo, "{} says something that it was not asked", node_.host);
      auto value = parser_.take(in, sent_.front()->place);
      if (!value) return fail_in(node_.host, {ErrorCode::kIo, value.error().message});
      if (*value) SHALE_TRY(reply(std::move(**value)));
    }
  }
  return {};
}

Status RedisLink::reply(RespValue value) {
  auto call = std::move(sent_.front());
  sent_.pop_front();
  const bool error = value.kind == RespValue::Kind::kError;
  if (call->place && value.kind == RespValue::Kind::kBulk && value.integer > 0) {
    blob_bytes_ = std::max(static_cast<std::uint64_t>(value.integer), blob_bytes_ - blob_bytes_ / 8);
  }
  if (greetings_ > 0) {
    --greetings_;
    const bool refused = call->may_be_refused && refuses_command({ErrorCode::kIo, value.text});
    if (error && !refused && value.text.find(kNoPasswordNeeded) == std::string::npos) {
      fail_all({ErrorCode::kIo,
                fmt::format("{}:{} refuses: {}", node_.host, node_.port, printable(value.text, kSaidBytes))});
    }
    return {};
  }
  std::optional<Error> moved;  // another server may be reached by the same name or address now
  if (error && value.text.starts_with("READONLY")) moved = said_by(node_, value.text);
  on_reply_(std::move(call), std::move(value));
  if (moved && sent_.empty() && out_.empty()) return std::unexpected(*moved);
  return {};
}

void RedisLink::lost(const Error& error) {
  socket_.reset();
  std::vector<std::unique_ptr<RedisCall>> failed;
  std::ranges::move(std::exchange(out_, {}), std::back_inserter(sent_));
  for (auto& call : std::exchange(sent_, {})) {
    (call->tries++ == 0 ? out_ : sent_).push_back(std::move(call));
  }
  for (auto& call : std::exchange(sent_, {})) on_reply_(std::move(call), std::unexpected(error));
  if (!out_.empty() && !socket_) connect();
}

// A reply that nobody waits for any more stands in the way of those behind it, which go by another connection. So does
// a command that has begun to go out; TLS may hold its first record, and would send it in place of another's.
void RedisLink::expire() {
  const double now_s = clock_.now_s();
  const auto in_time = [now_s](const auto& call) { return call->deadline_s > now_s; };
  const bool may_have_begun = out_offset_ > 0 || access_.tls;
  const bool in_the_way =
      !std::ranges::all_of(sent_, in_time) || (may_have_begun && !out_.empty() && !in_time(out_.front()));
  std::vector<std::unique_ptr<RedisCall>> late;
  earliest_s_ = std::numeric_limits<double>::infinity();
  for (auto* calls : {&sent_, &out_}) {
    const auto first_late = std::stable_partition(calls->begin(), calls->end(), in_time);
    std::move(first_late, calls->end(), std::back_inserter(late));
    calls->erase(first_late, calls->end());
    for (const auto& call : *calls) earliest_s_ = std::min(earliest_s_, call->deadline_s);
  }
  const Error error{ErrorCode::kIo, fmt::format("{}:{} was not done within the {:.3g} s of an operation", node_.host,
                                                node_.port, access_.deadline_s)};
  if (in_the_way) {
    on_lost_();
    lost(error);
  }
  for (auto& call : late) on_reply_(std::move(call), std::unexpected(error));
}

void RedisLink::fail_all(const Error& error) {
  on_lost_();
  end_all(error);
}

void RedisLink::end_all(const Error& error) {
  socket_.reset();
  earliest_s_ = std::numeric_limits<double>::infinity();
  std::ranges::move(std::exchange(out_, {}), std::back_inserter(sent_));
  for (auto& call : std::exchange(sent_, {})) on_reply_(std::move(call), std::unexpected(error));
}

}  // namespace shale
