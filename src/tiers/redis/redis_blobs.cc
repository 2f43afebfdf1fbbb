#include "tiers/redis/redis_blobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/parsing.h"
#include "tiers/redis/redis_replies.h"

namespace shale {
namespace {

using Kind = RespValue::Kind;

constexpr std::size_t kAskedAtOnce = 512;
constexpr char kInlined = 'i', kPieces = 'p';  // how a field's value begins
constexpr std::string_view kManifest = "manifest";

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

}  // namespace

std::string redis_head(std::span<const std::byte> blob) {
  if (blob.size() <= kRedisInlineBytes) {
    return kInlined + std::string(reinterpret_cast<const char*>(blob.data()), blob.size());
  }
  const std::uint64_t bytes = blob.size();
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
    if (head.bytes > kRedisInlineBytes && head.bytes <= kRedisBlobBytesMax) return head;
  }
  return fail(ErrorCode::kCorrupt, "the field of a blob holds {} bytes that are not what this version writes",
              value.size());
}

std::string redis_field(std::uint32_t part) {
  return part == BlobId::kManifest ? std::string(kManifest) : std::to_string(part);
}

std::optional<std::uint32_t> parse_redis_field(std::string_view field) {
  if (field == kManifest) return BlobId::kManifest;
  const auto part = parse_integer<std::uint32_t>(field);
  return part && redis_field(*part) == field ? part : std::nullopt;
}

RedisBlobs::RedisBlobs(std::string prefix, RedisNode node, RedisAccess access, const Clock& clock)
    : prefix_(std::move(prefix)), buffers_(BufferPool::make()), client_(std::move(node), std::move(access), clock) {}

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
    const std::string& message = nodes.error().message;
    const bool password = message.find("NOAUTH") != std::string::npos || message.find("WRONGPASS") != std::string::npos;
    return std::unexpected(Error{password ? ErrorCode::kInvalidArgument : nodes.error().code, message});
  }
  const std::vector<RedisClient::Command> question{{"INFO", "memory"}};
  auto told = std::move(client_.ask(question, nodes->front()).front());
  for (std::size_t i = 1; i < nodes->size() && !told && !refuses_command(told.error()); ++i) {
    told = std::move(client_.ask(question, (*nodes)[i]).front());  // what a node that is away held is missing
  }
  if (!told && !refuses_command(told.error())) return std::unexpected(told.error());
  constexpr std::string_view kName = "\nmaxmemory:";
  const std::size_t at = told ? told->text.find(kName) : std::string::npos;
  if (at == std::string::npos) return {};
  std::uint64_t bytes = 0;
  const char* digits = told->text.data() + at + kName.size();
  if (std::from_chars(digits, told->text.data() + told->text.size(), bytes).ec == std::errc())
    memory_bytes_max_ = bytes;
  return {};
}

Result<std::optional<std::uint64_t>> RedisBlobs::remove(const BlobId& id) {
  const double deadline_s = client_.deadline_s();
  const RedisClient::Command get{"HGET", key(id.object), redis_field(id.part)};
  const auto reply = std::move(client_.ask({&get, 1}, deadline_s).front());
  const auto head = head_of(reply);
  if (!head && head.error().code != ErrorCode::kCorrupt) return std::unexpected(head.error());
  if (head && !*head) return std::nullopt;
  const std::uint64_t bytes = head ? (*head)->bytes : 0;
  std::vector<RedisClient::Command> removal{{"HDEL", key(id.object), redis_field(id.part)}};
  RedisClient::Command pieces{"UNLINK"};
  for (std::uint64_t piece = 0; piece < pieces_of(bytes); ++piece) pieces.push_back(piece_key(id, piece));
  if (bytes > kRedisInlineBytes) removal.push_back(std::move(pieces));
  const auto replies = client_.ask(removal, deadline_s);
  SHALE_ASSIGN(const std::int64_t gone, integer_of(replies.front(), "HDEL"));
  SHALE_TRY(integer_of(replies.back(), "UNLINK"));
  return gone == 1 ? std::optional(bytes) : std::nullopt;
}

Result<std::vector<std::string>> RedisBlobs::keys_on(const RedisNode& node) {
  std::vector<std::string> keys;
  std::string cursor = "0";
  do {
    if (ending_) return fail(ErrorCode::kCancelled, "{} is being closed", node.host);
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
    if (ending_) return fail(ErrorCode::kCancelled, "the tier is being closed");
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
    if (ending_) return fail(ErrorCode::kCancelled, "the tier is being closed");
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
