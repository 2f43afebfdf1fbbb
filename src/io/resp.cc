#include "io/resp.h"

#include <algorithm>
#include <utility>

#include "core/parsing.h"

namespace shale {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kLineBytesMax = 64 << 10;  // with its end
constexpr std::size_t kReplyDepthMax = 8;

void add_bulk(std::string& out, std::string_view text) {
  fmt::format_to(std::back_inserter(out), "${}\r\n{}\r\n", text.size(), text);
}

Result<std::int64_t> number_of(std::string_view text) {
  if (const auto number = parse_integer<std::int64_t>(text)) return *number;
  return fail(ErrorCode::kCorrupt, "a reply holds no number where one should be");
}

}  // namespace

RespCommand resp_command(std::span<const std::string_view> arguments, std::optional<std::size_t> payload_bytes,
                         std::span<const std::string_view> after) {
  RespCommand command;
  command.head = fmt::format("*{}\r\n", arguments.size() + (payload_bytes ? 1 : 0) + after.size());
  for (const std::string_view argument : arguments) add_bulk(command.head, argument);
  if (payload_bytes) {
    command.head += fmt::format("${}\r\n", *payload_bytes);
    command.tail = "\r\n";
  }
  for (const std::string_view argument : after) add_bulk(command.tail, argument);
  return command;
}

Result<std::optional<RespValue>> RespParser::take(std::span<const std::byte>& in, const Place& place) {
  for (;;) {
    if (state_ == State::kBulk) {
      take_bulk(in);
      if (bulk_left_ > 0) return std::nullopt;
      state_ = State::kBulkEnd;
    }
    const bool there = take_line(in);
    // Whatever came with it: the same is refused in all pieces.
    if (line_.size() > (state_ == State::kBulkEnd ? kLineEnd.size() : kLineBytesMax)) {
      return fail(ErrorCode::kCorrupt, "a reply has no end of its {}", state_ == State::kBulkEnd ? "string" : "line");
    }
    if (!there) return std::nullopt;
    std::string line = std::exchange(line_, {});
    line.resize(line.size() - kLineEnd.size());
    if (std::exchange(state_, State::kLine) == State::kBulkEnd) {
      whole_ = true;
    } else {
      SHALE_TRY(begin(line, place));
    }
    if (!whole_) continue;
    if (auto reply = complete()) return reply;
  }
}

// The line with its end, in line_; false when there is no end yet.
bool RespParser::take_line(std::span<const std::byte>& in) {
  const auto text = std::string_view(reinterpret_cast<const char*>(in.data()), in.size());
  const std::size_t feed = text.find('\n');
  const std::size_t bytes = feed == std::string_view::npos ? text.size() : feed + 1;
  line_ += text.substr(0, bytes);
  in = in.subspan(bytes);
  return line_.ends_with(kLineEnd);
}

void RespParser::take_bulk(std::span<const std::byte>& in) {
  const auto bytes = in.first(std::min(in.size(), bulk_left_));
  if (value_.placed) {
    std::ranges::copy(bytes, open_place().begin());
  } else {
    value_.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  bulk_left_ -= bytes.size();
  in = in.subspan(bytes.size());
}

Status RespParser::begin(std::string_view line, const Place& place) {
  if (line.empty()) return fail(ErrorCode::kCorrupt, "a reply begins with an empty line");
  const std::string_view rest = line.substr(1);
  value_ = {};
  whole_ = true;
  switch (line.front()) {
    case '+':
    case '-':
      value_.kind = line.front() == '+' ? RespValue::Kind::kText : RespValue::Kind::kError;
      value_.text = rest;
      return keep(rest.size());
    case ':': {
      value_.kind = RespValue::Kind::kInteger;
      SHALE_ASSIGN(value_.integer, number_of(rest));
      return keep(0);
    }
    case '$': {
      SHALE_ASSIGN(const std::int64_t bytes, number_of(rest));
      return begin_bulk(bytes, place);
    }
    case '*': {
      SHALE_ASSIGN(const std::int64_t items, number_of(rest));
      return begin_array(items);
    }
    default:
      return fail(ErrorCode::kCorrupt, "a reply begins with byte {}", static_cast<unsigned char>(line.front()));
  }
}

Status RespParser::begin_bulk(std::int64_t bytes, const Place& place) {
  if (bytes == -1) return keep(0);
  if (bytes < 0 || bytes > static_cast<std::int64_t>(kRespBulkBytesMax)) {
    return fail(ErrorCode::kCorrupt, "a reply says that a string has {} bytes", bytes);
  }
  whole_ = false;
  state_ = State::kBulk;
  bulk_left_ = static_cast<std::size_t>(bytes);
  value_.kind = RespValue::Kind::kBulk;
  value_.integer = bytes;
  placed_ = stack_.empty() && place ? place(bulk_left_) : std::span<std::byte>();
  value_.placed = bytes > 0 && placed_.size() == bulk_left_;
  return keep(value_.placed ? 0 : bulk_left_);
}

Status RespParser::begin_array(std::int64_t items) {
  if (items == -1) return keep(0);
  if (items < 0 || items > static_cast<std::int64_t>(kRespReplyBytesMax / sizeof(RespValue)) ||
      stack_.size() == kReplyDepthMax) {
    return fail(ErrorCode::kCorrupt, "a reply says that a list has {} items, at depth {}", items, stack_.size());
  }
  value_.kind = RespValue::Kind::kArray;
  if (items == 0) return keep(0);
  SHALE_TRY(keep(0));
  whole_ = false;
  stack_.push_back({std::exchange(value_, {}), static_cast<std::size_t>(items)});
  return {};
}

Status RespParser::keep(std::size_t bytes) {
  kept_bytes_ += sizeof(RespValue) + bytes;
  if (kept_bytes_ <= kRespReplyBytesMax) return {};
  return fail(ErrorCode::kCorrupt, "a reply has more than {} bytes", kRespReplyBytesMax);
}

// The reply, if value_ was the last that it lacked.
std::optional<RespValue> RespParser::complete() {
  RespValue value = std::exchange(value_, {});
  whole_ = false;
  while (!stack_.empty()) {
    Frame& array = stack_.back();
    array.value.items.push_back(std::move(value));
    if (--array.left > 0) return std::nullopt;
    value = std::move(array.value);
    stack_.pop_back();
  }
  kept_bytes_ = 0;
  return value;
}

}  // namespace shale
