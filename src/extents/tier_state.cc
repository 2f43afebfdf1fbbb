#include "extents/tier_state.h"

#include <algorithm>

namespace shale {
namespace {

constexpr std::uint64_t kHeadroomMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kHeadroomShare = 16;  // of the capacity, at most

}  // namespace

bool TierState::has_room(std::uint64_t bytes) {
  const std::uint64_t capacity = capacity_bytes();
  if (tier().silent()) return false;
  if (capacity == kUnlimited || bytes > capacity) return bytes <= capacity;
  std::uint64_t used = tier().used_bytes();
  for (const auto& [name, begun] : writing) used += begun.reserved ? 0 : begun.bytes;
  const bool full = used > capacity - bytes;
  found_full = found_full || full;
  return !full && (config.folder.empty() || promised_bytes() <= capacity - bytes);
}

std::uint64_t TierState::headroom_bytes() const {
  return config.folder.empty() || !has_others ? 0 : std::min(kHeadroomMax, capacity_bytes() / kHeadroomShare);
}

std::uint64_t TierState::others_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, others] : others_writing) bytes += others;
  return bytes;
}

std::uint64_t TierState::promised_bytes() const {
  std::uint64_t bytes = known_bytes + removals.bytes() + others_bytes();
  for (const auto& [name, begun] : writing) bytes += begun.bytes;
  for (const auto& [name, own] : own_objects) bytes += own.bytes;
  for (const auto& [name, lost] : unread) bytes += lost.stored.facts.bytes;
  return bytes;
}

void TierState::count_what_is_there() const {
  tier().count_others(static_cast<std::int64_t>(promised_bytes() - tier().used_bytes()));
}

}  // namespace shale
