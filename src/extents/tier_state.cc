#include "extents/tier_state.h"

namespace shale {

std::uint64_t TierState::promised_bytes() const {
  std::uint64_t bytes = known_bytes + removals.bytes();
  for (const auto& [name, begun] : writing) bytes += begun.bytes;
  for (const auto& [name, others] : others_writing) bytes += others;
  for (const auto& [name, own] : own_objects) bytes += own.bytes;
  for (const auto& [name, lost] : unread) bytes += lost.stored.facts.bytes;
  return bytes;
}

void TierState::count_what_is_there() const {
  tier().count_others(static_cast<std::int64_t>(promised_bytes() - tier().used_bytes()));
}

}  // namespace shale
