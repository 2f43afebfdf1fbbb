// RESP2, the protocol of Redis (https://redis.io/docs/reference/protocol-spec): commands out, replies in. Nothing that
// a server sends is trusted: lengths, depth and numbers are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

inline constexpr std::size_t kRespBulkBytesMax = std::size_t{8} << 20;    // of one string
inline constexpr std::size_t kRespReplyBytesMax = std::size_t{64} << 20;  // of one reply, as it is kept

struct RespValue {
  enum class Kind : std::uint8_t { kNull, kText, kError, kInteger, kBulk, kArray };
  Kind kind = Kind::kNull;
  std::string text;          // of a text, an error, and a bulk string that was given no place
  std::int64_t integer = 0;  // its value; of a bulk string that was given one, how many bytes came
  bool placed = false;
  std::vector<RespValue> items;
};

// A command of these arguments. With `payload_bytes` one more argument of so many bytes, which others send, comes after
// them, and then `tail`.
struct RespCommand {
  std::string head, tail;
};
RespCommand resp_command(std::span<const std::string_view> arguments,
                         std::optional<std::size_t> payload_bytes = std::nullopt,
                         std::span<const std::string_view> after = {});

// Replies out of a stream of bytes, in any pieces.
class RespParser {
 public:
  // Where the bytes of a bulk string of that length, outside arrays, are to go: exactly as many, valid until it is
  // complete; or nowhere, and the reply keeps them.
  using Place = std::function<std::span<std::byte>(std::size_t bytes)>;

  // Takes bytes off the front of `in` until a reply is complete, or none are left. kCorrupt is final.
  Result<std::optional<RespValue>> take(std::span<const std::byte>& in, const Place& place);
  // The rest of the place of a string that has one: bytes may be received right there, and be told of.
  std::span<std::byte> open_place() const { return placed_.last(value_.placed ? bulk_left_ : 0); }
  void received(std::size_t bytes) { bulk_left_ -= bytes; }

 private:
  enum class State : std::uint8_t { kLine, kBulk, kBulkEnd };
  struct Frame {
    RespValue value;
    std::size_t left = 0;
  };

  Status begin(std::string_view line, const Place& place);
  Status begin_bulk(std::int64_t bytes, const Place& place);
  Status begin_array(std::int64_t items);
  Status keep(std::size_t bytes);
  bool take_line(std::span<const std::byte>& in);
  void take_bulk(std::span<const std::byte>& in);
  std::optional<RespValue> complete();

  State state_ = State::kLine;
  std::string line_;  // so far; of kBulkEnd, the two bytes after a string
  RespValue value_;   // in flight
  bool whole_ = false;
  std::span<std::byte> placed_;
  std::size_t bulk_left_ = 0;
  std::size_t kept_bytes_ = 0;  // of the reply in flight
  std::vector<Frame> stack_;    // arrays that it is part of
};

}  // namespace shale
