#include "tiers/redis/redis_slots.h"

#include <algorithm>
#include <utility>

#include "core/parsing.h"

namespace shale {

using Kind = RespValue::Kind;

namespace {

constexpr std::uint32_t kSlots = 16384;
constexpr std::size_t kNodesMax = 1024;

// CRC-16/XMODEM.
std::uint16_t crc16(std::string_view text) {
  std::uint16_t crc = 0;
  for (const char c : text) {
    crc = static_cast<std::uint16_t>(crc ^ (static_cast<unsigned char>(c) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<std::uint16_t>(crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
  }
  return crc;
}

}  // namespace

std::uint16_t redis_slot(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return static_cast<std::uint16_t>(crc16(key) % kSlots);
}

std::optional<RedisRedirection> parse_redirection(std::string_view error, const RedisNode& from) {
  RedisRedirection to;
  to.asking = error.starts_with("ASK ");
  if (!to.asking && !error.starts_with("MOVED ")) return std::nullopt;
  error.remove_prefix(error.find(' ') + 1);
  const std::size_t space = error.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto slot = parse_integer<std::uint16_t>(error.substr(0, space));
  const std::string_view where = error.substr(space + 1);
  const std::size_t colon = where.rfind(':');
  if (!slot || *slot >= kSlots || colon == std::string_view::npos) return std::nullopt;
  const auto port = parse_integer<std::uint16_t>(where.substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  to.slot = *slot;
  to.node = {colon == 0 ? from.host : std::string(where.substr(0, colon)), *port};
  return to;
}

bool RedisSlots::cluster() const {
  const std::lock_guard lock(mutex_);
  return !owners_.empty();
}

RedisNode RedisSlots::node(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  return nodes_[number];
}

std::optional<std::uint32_t> RedisSlots::number_of(const RedisNode& node) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(nodes_, node);
  if (known == nodes_.end() && nodes_.size() == kNodesMax) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(known - nodes_.begin());
  if (known == nodes_.end()) nodes_.push_back(node);
  return number;
}

std::uint32_t RedisSlots::owner(std::optional<std::uint16_t> slot) const {
  const std::lock_guard lock(mutex_);
  return owners_.empty() ? 0 : owners_[slot.value_or(0)];
}

std::vector<std::uint32_t> RedisSlots::owners() const {
  std::vector<std::uint32_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers = owners_;
  }
  if (numbers.empty()) return {0};
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

void RedisSlots::move(std::uint16_t slot, std::uint32_t to) {
  const std::lock_guard lock(mutex_);
  if (owners_.empty()) owners_.assign(kSlots, 0);
  owners_[slot] = to;
}

Status RedisSlots::take(const RespValue& slots, const RedisNode& from) {
  std::vector<std::uint32_t> owners;
  {
    const std::lock_guard lock(mutex_);
    owners = owners_;
  }
  owners.resize(kSlots, 0);
  for (const RespValue& range : slots.items) {
    const auto bad = [&] {
      return fail(ErrorCode::kIo, "{}:{} tells of its slots what cannot be", from.host, from.port);
    };
    if (range.items.size() < 3 || range.items[2].items.size() < 2) return bad();
    const RespValue &first = range.items[0], &last = range.items[1];
    const RespValue &host = range.items[2].items[0], &port = range.items[2].items[1];
    const bool sound = first.kind == Kind::kInteger && last.kind == Kind::kInteger && port.kind == Kind::kInteger &&
                       first.integer >= 0 && first.integer <= last.integer && last.integer < kSlots &&
                       port.integer > 0 && port.integer < 65536;
    if (!sound) return bad();
    const bool named = host.kind == Kind::kBulk && !host.text.empty() && host.text != "?";
    const auto number = number_of({named ? host.text : from.host, static_cast<std::uint16_t>(port.integer)});
    if (!number) return bad();
    std::fill(owners.begin() + first.integer, owners.begin() + last.integer + 1, *number);
  }
  const std::lock_guard lock(mutex_);
  owners_ = std::move(owners);
  return {};
}

}  // namespace shale
