// What blobs in Redis make of its replies.
#pragma once

#include "tiers/redis/redis_blobs.h"

namespace shale {

inline std::uint64_t pieces_of(std::uint64_t bytes) { return (bytes + kRedisPieceBytes - 1) / kRedisPieceBytes; }

inline std::unexpected<Error> strange(std::string_view to) {
  return fail(ErrorCode::kIo, "the server's answer to {} is none", to);
}

inline Result<std::int64_t> integer_of(const Result<RespValue>& reply, std::string_view to) {
  if (!reply) return std::unexpected(reply.error());
  if (reply->kind != RespValue::Kind::kInteger) return strange(to);
  return reply->integer;
}

// Nothing where the field is not there. Refers to the reply.
inline Result<std::optional<RedisHead>> head_of(const Result<RespValue>& reply) {
  if (!reply) return std::unexpected(reply.error());
  if (reply->kind == RespValue::Kind::kNull) return std::nullopt;
  if (reply->kind != RespValue::Kind::kBulk) return strange("HGET");
  SHALE_ASSIGN(const RedisHead head, parse_redis_head(reply->text));
  return head;
}

}  // namespace shale
